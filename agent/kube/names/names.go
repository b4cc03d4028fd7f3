package names

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	tagBits  = 62
	tagMask  = 1<<tagBits - 1
	tickBits = 60
	version  = 8 // of UUIDs whose bits have a meaning of their maker's choice
)

// end is when names run out of time. It is near enough for names to begin with a zero, so that a random name of an
// earlier version is almost surely larger.
var end = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// MaxSkew is how far another node's clock may be ahead of the API server's. Names that are further ahead are ignored.
const MaxSkew = time.Minute

// Tag identifies, in a name, the asker of the snapshot. It has 62 bits.
type Tag uint64

// TagOf returns the tag of the asker with this unique id.
func TagOf(id string) Tag {
	sum := sha256.Sum256([]byte(id))
	return Tag(binary.BigEndian.Uint64(sum[:]) & tagMask)
}

// Chance returns a random tag, for a snapshot whose request nothing will retry.
func Chance() Tag {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return Tag(binary.BigEndian.Uint64(b[:]) & tagMask)
}

// Parse returns what a name made by a [Clock] says. For other names ok is false.
func Parse(name string) (at time.Time, tag Tag, ok bool) {
	u, err := uuid.Parse(name)
	if err != nil || u.String() != name || u.Version() != version || u.Variant() != uuid.RFC4122 {
		return time.Time{}, 0, false
	}
	high := binary.BigEndian.Uint64(u[:8])
	left := high>>16<<12 | high&0xfff
	return time.UnixMicro(end - int64(left)), Tag(binary.BigEndian.Uint64(u[8:]) & tagMask), true
}

// Clock makes names that fall with time. Its methods may be called concurrently.
type Clock struct {
	now func() time.Time

	mu   sync.Mutex
	last int64 // latest time of all names made or seen, in microseconds since 1970
}

// NewClock returns a clock that reads the time from now.
func NewClock(now func() time.Time) *Clock { return &Clock{now: now} }

// Name returns a name that is less than all names made or seen before, whatever time it is.
func (c *Clock) Name(t Tag) string {
	c.mu.Lock()
	c.last = min(max(c.last+1, c.now().UnixMicro(), end-(1<<tickBits-1)), end)
	left := uint64(end - c.last)
	c.mu.Unlock()
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:], left>>12<<16|version<<12|left&0xfff)
	binary.BigEndian.PutUint64(u[8:], 1<<63|uint64(t)&tagMask)
	return u.String()
}

// Saw records a name that was made elsewhere or earlier, so that the next one is less. Created is when the API server
// created the object. Saw ignores a name that is more than [MaxSkew] ahead of that.
func (c *Clock) Saw(name string, created time.Time) {
	at, _, ok := Parse(name)
	if !ok || at.After(created.Add(MaxSkew)) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, at.UnixMicro())
}
