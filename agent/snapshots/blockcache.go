package snapshots

import (
	"log/slog"
	"sync"
	"time"

	"diapause.dev/storage/cache"
)

// tidyEvery is how often the cache is compared with the stores. Each comparison lists every store.
const tidyEvery = time.Hour

// blockCache caches what restores read from stores on other machines. It is opened with the first such store.
type blockCache struct {
	dir      string
	maxBytes int64
	log      *slog.Logger

	mu     sync.Mutex
	cache  *cache.Cache
	failed bool
	tidied time.Time // when blocks of deleted objects were removed last
}

// get returns the cache, or nil if there is none. Without a cache restores are slower, but nothing fails.
func (l *blockCache) get() *cache.Cache {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cache != nil || l.failed || l.maxBytes <= 0 {
		return l.cache
	}
	c, err := cache.Open(l.dir, cache.Options{MaxBytes: l.maxBytes, Logger: l.log})
	if err != nil {
		l.log.Warn("no cache", "error", err)
		l.failed = true
		return nil
	}
	l.cache = c
	return c
}

// due returns the cache if it is open and its last comparison with the stores is tidyEvery ago, or else nil.
func (l *blockCache) due() *cache.Cache {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.tidied) < tidyEvery {
		return nil
	}
	return l.cache
}

// noteTidied notes that the cache, as of now, holds no blocks of deleted objects.
func (l *blockCache) noteTidied() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tidied = time.Now()
}

// bytes returns how many bytes the cache holds.
func (l *blockCache) bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cache == nil {
		return 0
	}
	return l.cache.Bytes()
}

func (l *blockCache) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cache == nil {
		return nil
	}
	return l.cache.Close()
}
