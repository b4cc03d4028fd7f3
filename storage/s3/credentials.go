package s3

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"diapause.dev/storage/bucket"
)

// Names in a file of credentials.
const (
	defaultProfile = "default"
	idName         = "aws_access_key_id"
	secretName     = "aws_secret_access_key" //nolint:gosec // the name alone
	tokenName      = "aws_session_token"     //nolint:gosec // the name alone
)

// Credentials are what a client signs its requests with.
type Credentials = credentials.Credentials

// CredentialsFile returns the credentials in a file, in the format of AWS's shared credentials file, under [default].
// The file is read again each minute. CredentialsFile returns an error if the file cannot be used.
func CredentialsFile(path string) (*Credentials, error) {
	f := &file{path: path, profile: defaultProfile}
	if _, err := f.read(); err != nil {
		return nil, err
	}
	return credentials.New(f), nil
}

// file gives the credentials in a file. It is a credentials.Provider.
type file struct {
	credentials.Expiry
	path, profile string
}

// RetrieveWithCredContext implements credentials.Provider.
func (f *file) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return f.Retrieve()
}

// Retrieve implements credentials.Provider.
func (f *file) Retrieve() (credentials.Value, error) {
	v, err := f.read()
	if err != nil {
		return v, err
	}
	f.SetExpiration(time.Now().Add(bucket.Reread), 0)
	return v, nil
}

func (f *file) read() (credentials.Value, error) {
	v, err := f.parse()
	if err != nil {
		return credentials.Value{}, fmt.Errorf("%w: credentials in %s: %w", bucket.ErrCredentials, f.path, err)
	}
	return v, nil
}

// parse never puts a line of the file into an error.
func (f *file) parse() (v credentials.Value, err error) {
	values, err := bucket.ReadSection(f.path, f.profile)
	if err != nil {
		return v, err
	}
	v = credentials.Value{
		AccessKeyID: values[idName], SecretAccessKey: values[secretName], SessionToken: values[tokenName],
		SignerType: credentials.SignatureV4,
	}
	if v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return v, fmt.Errorf("want %s and %s under [%s]", idName, secretName, f.profile)
	}
	return v, nil
}

// ofProcess returns this process's own credentials: those in the environment, in its shared file, or those that the
// platform gives it.
func ofProcess(region string, t http.RoundTripper) *Credentials {
	path := os.Getenv("AWS_SHARED_CREDENTIALS_FILE")
	if home, err := os.UserHomeDir(); path == "" && err == nil {
		path = filepath.Join(home, ".aws", "credentials")
	}
	return credentials.New(&chain{providers: []credentials.Provider{
		&credentials.EnvAWS{},
		&file{path: path, profile: cmp.Or(os.Getenv("AWS_PROFILE"), defaultProfile)},
		&credentials.IAM{Region: region, Client: &http.Client{Transport: t, Timeout: bucket.PlatformTime}},
	}})
}

// chain gives the first credentials that it finds. The library's own chain goes on without credentials, and without a
// reason, if it finds none.
type chain struct {
	providers []credentials.Provider
	last      credentials.Provider // that gave credentials, or nil
}

// Retrieve implements credentials.Provider.
func (c *chain) Retrieve() (credentials.Value, error) { return c.RetrieveWithCredContext(nil) }

// RetrieveWithCredContext implements credentials.Provider.
func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	var reasons error
	for _, p := range c.providers {
		v, err := p.RetrieveWithCredContext(cc)
		if err == nil && v.AccessKeyID != "" {
			c.last = p
			return v, nil
		}
		if _, isFile := p.(*file); isFile && err != nil && !errors.Is(err, fs.ErrNotExist) {
			return credentials.Value{}, err // it was meant, and nothing else
		}
		reasons = errors.Join(reasons, err)
	}
	return credentials.Value{}, fmt.Errorf("%w, in the environment, in a file, or from the platform: %w",
		bucket.ErrCredentials, reasons)
}

// IsExpired implements credentials.Provider.
func (c *chain) IsExpired() bool { return c.last == nil || c.last.IsExpired() }
