package kube

import (
	"context"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// yielding is a cache for which nothing waits once life is done. Otherwise a manager that is stopped before its
// caches are filled would wait for them, busily, for ever.
type yielding struct {
	cache.Cache
	life context.Context
}

// yieldingTo returns a function that makes such caches.
func yieldingTo(life context.Context) cache.NewCacheFunc {
	return func(c *rest.Config, o cache.Options) (cache.Cache, error) {
		made, err := cache.New(c, o)
		if err != nil {
			return nil, err
		}
		return yielding{made, life}, nil
	}
}

// WaitForCacheSync implements cache.Cache. It also returns true if life is done.
func (y yielding) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(y.life, cancel)()
	return y.Cache.WaitForCacheSync(ctx) || y.life.Err() != nil
}
