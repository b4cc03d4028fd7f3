package bucket

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// maxCredentials bounds a file of credentials, in bytes.
	maxCredentials = 64 << 10
	// Reread is how long the content of a file of credentials counts.
	Reread = time.Minute
	// PlatformTime bounds one request to the service that gives a program its identity.
	PlatformTime = 30 * time.Second
)

// ErrCredentials is the kind of error for credentials that are not there, or cannot be used.
var ErrCredentials = errors.New("no credentials")

// ReadSection returns the lines "name = value" that a file of credentials has under [section]. It never puts a line of
// the file into an error.
func ReadSection(path, section string) (map[string]string, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxCredentials+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxCredentials {
		return nil, fmt.Errorf("more than %d bytes", maxCredentials)
	}
	values, inside := make(map[string]string), false
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if strings.HasPrefix(line, "[") {
			inside = strings.Trim(line, "[] ") == section
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok && inside && !strings.HasPrefix(line, "#") {
			values[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return values, nil
}
