package azblob

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"diapause.dev/storage/bucket"
)

// Scheme is what the location of a store in Azure Blob Storage begins with.
const Scheme = "azblob://"

const endpointParameter = "endpoint"

// Want says what a location looks like, for errors.
const Want = "azblob://account/container/prefix, for other clouds than Azure's public one with " +
	"?endpoint=https://host:port"

// Place says where a store is.
type Place struct {
	Account, Container, Prefix string // the prefix is "", or ends in '/'
	// Endpoint is the account's, "https://host:port" or "https://host:port/ACCOUNT". Empty: that of the public cloud.
	Endpoint string
}

var (
	accountForm   = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
	containerForm = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])+$`)
)

// Parse reads a location, "azblob://account/container/prefix?endpoint=https://host".
func Parse(location string) (Place, error) { return bucket.Parse(location, Scheme, Want, parse) }

func parse(rest, query string) (p Place, err error) {
	p.Account, rest, _ = strings.Cut(rest, "/")
	p.Container, p.Prefix, _ = strings.Cut(rest, "/")
	if !accountForm.MatchString(p.Account) {
		return p, fmt.Errorf("account %q: it has 3 to 24 of a-z and 0-9", p.Account)
	}
	if n := len(p.Container); n < 3 || n > 63 || !containerForm.MatchString(p.Container) {
		return p, fmt.Errorf("container %q: it has 3 to 63 of a-z, 0-9 and single '-' between them", p.Container)
	}
	if p.Prefix, err = bucket.Prefix(p.Prefix); err != nil {
		return p, err
	}
	if slices.ContainsFunc(strings.Split(p.Prefix, "/"), func(s string) bool { return strings.HasSuffix(s, ".") }) {
		return p, fmt.Errorf("prefix %q: Azure has no directories that end with '.'", p.Prefix)
	}
	return p, bucket.Parameters(query, p.set)
}

func (p *Place) set(name, value string) error {
	if name != endpointParameter {
		return fmt.Errorf("unknown parameter %q", name)
	}
	p.Endpoint = value
	if err := bucket.CheckEndpoint(name, strings.TrimSuffix(value, "/"+p.Account)); err != nil {
		return fmt.Errorf("%w; behind it there may be /%s", err, p.Account)
	}
	return nil
}

// String returns the location, in the syntax of Parse.
func (p Place) String() string {
	s := strings.TrimSuffix(Scheme+p.Account+"/"+p.Container+"/"+p.Prefix, "/")
	if p.Endpoint != "" {
		s += "?" + endpointParameter + "=" + p.Endpoint
	}
	return s
}

// url returns the container's URL.
func (p Place) url() string {
	endpoint := p.Endpoint
	if endpoint == "" {
		endpoint = "https://" + p.Account + ".blob.core.windows.net"
	}
	return endpoint + "/" + p.Container
}

// clouds are the domains of Azure's own clouds, in which the service has all hosts.
var clouds = []string{
	".blob.core.windows.net", ".blob.storage.azure.net", ".blob.core.usgovcloudapi.net", ".blob.core.chinacloudapi.cn",
}

// encrypted reports whether requests go by TLS.
func (p Place) encrypted() bool { return strings.HasPrefix(p.url(), "https://") }

// ofAzure reports whether requests go to a host of Azure's, by TLS.
func (p Place) ofAzure() bool {
	u, err := url.Parse(p.url())
	return err == nil && p.encrypted() && slices.ContainsFunc(clouds, func(domain string) bool {
		return strings.HasSuffix(u.Hostname(), domain)
	})
}
