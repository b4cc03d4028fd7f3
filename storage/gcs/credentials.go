package gcs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	gcs "cloud.google.com/go/storage"
	"google.golang.org/api/option"
)

// maxCredentials bounds a file of credentials, in bytes.
const maxCredentials = 64 << 10

// kinds are the kinds of credentials that are taken from a file: those of programs. A kind that is not here would reach
// people's accounts.
var kinds = []credentials.CredType{
	credentials.ServiceAccount, credentials.ExternalAccount, credentials.ImpersonatedServiceAccount,
}

// CredentialsFile returns an option by which a client uses the credentials in that file, in place of those that it
// would find by itself. They may read and write objects, and change no bucket. The file is read again whenever a new
// token is needed, which is about once an hour. CredentialsFile returns an error if the file cannot be used.
func CredentialsFile(path string) (option.ClientOption, error) {
	f := credentialsFile(path)
	if _, err := f.read(); err != nil {
		return nil, err
	}
	return option.WithAuthCredentials(auth.NewCredentials(&auth.CredentialsOptions{
		TokenProvider: auth.NewCachedTokenProvider(f, nil),
	})), nil
}

// credentialsFile is the path of a file of credentials. It is an auth.TokenProvider.
type credentialsFile string

// Token implements auth.TokenProvider.
func (f credentialsFile) Token(ctx context.Context) (*auth.Token, error) {
	c, err := f.read()
	if err != nil {
		return nil, err
	}
	return c.Token(ctx)
}

func (f credentialsFile) read() (*auth.Credentials, error) {
	c, err := f.parse()
	if err != nil {
		return nil, fmt.Errorf("credentials in %s: %w", string(f), err)
	}
	return c, nil
}

func (f credentialsFile) parse() (*auth.Credentials, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxCredentials+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxCredentials {
		return nil, fmt.Errorf("more than %d bytes", maxCredentials)
	}
	var is struct {
		Type credentials.CredType `json:"type"`
	}
	if err := json.Unmarshal(data, &is); err != nil {
		return nil, fmt.Errorf("not the JSON of credentials: %w", err)
	}
	if !slices.Contains(kinds, is.Type) {
		return nil, fmt.Errorf("of type %q, want one of %q", is.Type, kinds)
	}
	return credentials.NewCredentialsFromJSON(is.Type, data, &credentials.DetectOptions{
		Scopes: []string{gcs.ScopeReadWrite},
	})
}
