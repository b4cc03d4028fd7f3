package azblob

import (
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"diapause.dev/storage/bucket"
)

// client makes the library's clients for a container.
type client struct {
	place       Place
	credentials *Credentials
	options     azcore.ClientOptions

	mu      sync.Mutex
	made    *container.Client // or nil
	secret  secret            // that made has
	expires time.Time         // when the credentials have to be read again
}

// container returns a client with the credentials that count now. It sends nothing.
func (c *client) container() (*container.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made != nil && (c.credentials.platform || time.Now().Before(c.expires)) {
		return c.made, nil
	}
	made, err := c.read()
	if err != nil {
		return nil, err
	}
	c.made, c.expires = made, time.Now().Add(bucket.Reread)
	return made, nil
}

func (c *client) read() (*container.Client, error) {
	if c.credentials.platform {
		return c.withTokens()
	}
	s, err := c.credentials.read()
	if err == nil {
		err = s.of(c.place)
	}
	if err != nil {
		return nil, err
	}
	if c.made != nil && s == c.secret {
		return c.made, nil
	}
	made, err := c.withSecret(s)
	if err != nil { // the library's errors may have the secret in them
		return nil, fmt.Errorf("%w: those for %s cannot be used", bucket.ErrCredentials, c.place)
	}
	c.secret = s
	return made, nil
}

func (c *client) withSecret(s secret) (*container.Client, error) {
	o := &container.ClientOptions{ClientOptions: c.options}
	if s.sas != "" {
		return container.NewClientWithNoCredential(c.place.url()+"?"+s.sas, o)
	}
	key, err := container.NewSharedKeyCredential(s.account, s.key)
	if err != nil {
		return nil, err
	}
	return container.NewClientWithSharedKeyCredential(c.place.url(), key, o)
}

// withTokens returns a client that shows tokens. The library's own way would ask for tokens for whatever the service
// says that it wants.
func (c *client) withTokens() (*container.Client, error) {
	tokens, err := ofPlatform(c.options)
	if err != nil {
		return nil, err
	}
	o := c.options
	o.PerRetryPolicies = []policy.Policy{tokens}
	return container.NewClientWithNoCredential(c.place.url(), &container.ClientOptions{ClientOptions: o})
}

// blob returns a client for an object.
func (b *Backend) blob(name string) (*blockblob.Client, error) {
	c, err := b.client.container()
	if err != nil {
		return nil, err
	}
	return c.NewBlockBlobClient(b.place.Prefix + name), nil
}
