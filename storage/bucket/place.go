package bucket

import (
	"fmt"
	"net/url"
	"strings"

	"diapause.dev/storage"
)

// Parse reads a location that begins with a scheme. parse reads the rest of it, without the parameters, and these. want
// says what a location looks like.
func Parse[Place any](location, scheme, want string, parse func(path, query string) (Place, error)) (Place, error) {
	rest, ok := strings.CutPrefix(location, scheme)
	path, query, _ := strings.Cut(rest, "?")
	var p, none Place
	err := fmt.Errorf("it does not begin with %s", scheme)
	if ok {
		p, err = parse(path, query)
	}
	if err != nil {
		return none, fmt.Errorf("store %q: %w: want %s", location, err, want)
	}
	return p, nil
}

// Prefix returns the prefix of a store's objects for the path in its location: "", or ending in '/'.
func Prefix(path string) (string, error) {
	if path = strings.Trim(path, "/"); path == "" {
		return "", nil
	}
	if err := storage.ValidateObject(path); err != nil {
		return "", fmt.Errorf("prefix: %w", err)
	}
	return path + "/", nil
}

// Parameters calls set with each parameter of a location. Each may be there once.
func Parameters(query string, set func(name, value string) error) error {
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	for name, values := range parameters {
		if len(values) != 1 {
			return fmt.Errorf("parameter %q is given %d times", name, len(values))
		}
		if err := set(name, values[0]); err != nil {
			return err
		}
	}
	return nil
}

// CheckEndpoint returns an error unless the parameter called name is a service's address without a path.
func CheckEndpoint(name, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Scheme+"://"+u.Host != endpoint {
		return fmt.Errorf("%s %q is not https://host or https://host:port", name, endpoint)
	}
	return nil
}
