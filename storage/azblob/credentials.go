package azblob

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"strings"

	"diapause.dev/storage/bucket"
)

// Names in a file of credentials, and its section.
const (
	section     = "storage"
	accountName = "account"
	keyName     = "key"
	sasName     = "sas_token"
)

// Credentials are what the requests to a container are authorized with.
type Credentials struct {
	// read returns the account's key, or a shared access signature. Both are empty if tokens are used in their place.
	read func() (secret, error)
	// platform makes tokens of an identity in Microsoft Entra ID.
	platform bool
}

// secret is the key of an account, or a shared access signature.
type secret struct {
	account string // whose it is; empty: of any
	key     string // in base64
	sas     string // the parameters of a URL
}

// CredentialsFile returns the credentials in a file, in the format of Azure CLI's configuration: under [storage],
// account, and either key or sas_token. The file is read again each minute. CredentialsFile returns an error if the
// file cannot be used.
func CredentialsFile(path string) (*Credentials, error) {
	read := func() (secret, error) {
		s, err := parseFile(path)
		if err != nil {
			return s, fmt.Errorf("%w: credentials in %s: %w", bucket.ErrCredentials, path, err)
		}
		return s, nil
	}
	if _, err := read(); err != nil {
		return nil, err
	}
	return &Credentials{read: read}, nil
}

func parseFile(path string) (secret, error) {
	values, err := bucket.ReadSection(path, section)
	if err != nil {
		return secret{}, err
	}
	if values[accountName] == "" {
		return secret{}, fmt.Errorf("want %s, and %s or %s, under [%s]", accountName, keyName, sasName, section)
	}
	return newSecret(values[accountName], values[keyName], values[sasName])
}

// newSecret returns a secret of an account. Its errors do not have the secret in them.
func newSecret(account, key, sas string) (secret, error) {
	if (key == "") == (sas == "") {
		return secret{}, fmt.Errorf("want either the account's %s or a %s", keyName, sasName)
	}
	if _, err := base64.StdEncoding.DecodeString(key); err != nil {
		return secret{}, fmt.Errorf("the account's %s is not in base64", keyName)
	}
	parameters, err := url.ParseQuery(strings.TrimPrefix(sas, "?"))
	if err != nil || sas != "" && parameters.Get("sig") == "" {
		return secret{}, fmt.Errorf("the %s is not one: it has no signature", sasName)
	}
	return secret{account: account, key: key, sas: parameters.Encode()}, nil
}

// of returns an error unless the secret is for this place.
func (s secret) of(p Place) error {
	if s.account != p.Account {
		return fmt.Errorf("%w: those given are of account %.24q, not of %s", bucket.ErrCredentials, s.account, p.Account)
	}
	if s.sas != "" && !p.encrypted() {
		return fmt.Errorf("%w: a %s would go to %s readable for all on the way: use https://, or a %s",
			bucket.ErrCredentials, sasName, p.Endpoint, keyName)
	}
	return nil
}

// ofProcess returns this process's own credentials: the secret in its environment, or tokens of its identity.
func ofProcess(p Place) (*Credentials, error) {
	key, sas := os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_SAS_TOKEN")
	if key != "" || sas != "" {
		s, err := newSecret(os.Getenv("AZURE_STORAGE_ACCOUNT"), key, sas)
		if err != nil {
			return nil, fmt.Errorf("%w: AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN: %w", bucket.ErrCredentials, err)
		}
		return &Credentials{read: func() (secret, error) { return s, nil }}, nil
	}
	if !p.ofAzure() {
		return nil, fmt.Errorf("%w for %s: this process's identity is shown only to Azure's own hosts, over https://: "+
			"give the container a file in --bucket-credentials", bucket.ErrCredentials, p.Endpoint)
	}
	return &Credentials{platform: true}, nil
}
