package s3

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// maxCredentials bounds a file of credentials, in bytes.
	maxCredentials = 64 << 10
	// reread is how long the content of a file of credentials counts.
	reread = time.Minute
	// platformTime bounds one request to the service that gives a program its identity.
	platformTime = 30 * time.Second
)

// Names in a file of credentials.
const (
	defaultProfile = "default"
	idName         = "aws_access_key_id"
	secretName     = "aws_secret_access_key" //nolint:gosec // the name alone
	tokenName      = "aws_session_token"     //nolint:gosec // the name alone
)

// errCredentials is the kind of error for credentials that are not there, or cannot be used.
var errCredentials = errors.New("no credentials")

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
	f.SetExpiration(time.Now().Add(reread), 0)
	return v, nil
}

func (f *file) read() (credentials.Value, error) {
	v, err := f.parse()
	if err != nil {
		return credentials.Value{}, fmt.Errorf("%w: credentials in %s: %w", errCredentials, f.path, err)
	}
	return v, nil
}

// parse never puts a line of the file into an error.
func (f *file) parse() (v credentials.Value, err error) {
	in, err := os.Open(f.path)
	if err != nil {
		return v, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxCredentials+1))
	if err != nil {
		return v, err
	}
	if len(data) > maxCredentials {
		return v, fmt.Errorf("more than %d bytes", maxCredentials)
	}
	values := profile(data, f.profile)
	v = credentials.Value{
		AccessKeyID: values[idName], SecretAccessKey: values[secretName], SessionToken: values[tokenName],
		SignerType: credentials.SignatureV4,
	}
	if v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return v, fmt.Errorf("want %s and %s under [%s]", idName, secretName, f.profile)
	}
	return v, nil
}

// profile returns the values under [name].
func profile(data []byte, name string) map[string]string {
	values, in := make(map[string]string), false
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if strings.HasPrefix(line, "[") {
			in = strings.Trim(line, "[] ") == name
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok && in && !strings.HasPrefix(line, "#") {
			values[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return values
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
		&credentials.IAM{Region: region, Client: &http.Client{Transport: t, Timeout: platformTime}},
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
	return credentials.Value{}, fmt.Errorf("%w, in the environment, in a file, or from the platform: %w", errCredentials,
		reasons)
}

// IsExpired implements credentials.Provider.
func (c *chain) IsExpired() bool { return c.last == nil || c.last.IsExpired() }
