package volume

import (
	"archive/tar"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/sys/unix"
)

// attributeRecord begins the PAX record of an extended attribute, in libarchive's format: the name is escaped, the
// value in base64.
const attributeRecord = "LIBARCHIVE.xattr."

// ours begins the names of the extended attributes that a sandbox can give a file.
const ours = "user."

// record adds a PAX record to a header.
func record(h *tar.Header, key, value string) {
	if h.PAXRecords == nil {
		h.PAXRecords = make(map[string]string)
	}
	h.PAXRecords[key] = value
}

// attributes adds the extended attributes of a file to its header.
func attributes(fd int, h *tar.Header) error {
	names, err := listAttributes(fd)
	if err != nil || len(names) == 0 {
		return err
	}
	left := maxAttributes
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if !strings.HasPrefix(name, ours) {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return fmt.Errorf("extended attribute %.80q: %w", name, err)
		}
		if left -= len(name) + n; left < 0 {
			return fmt.Errorf("%w: extended attributes of more than %d bytes", ErrLimit, maxAttributes)
		}
		record(h, attributeRecord+url.QueryEscape(name), base64.StdEncoding.EncodeToString(value[:n]))
	}
	return nil
}

// listAttributes returns the names of a file's extended attributes, each followed by a zero byte.
func listAttributes(fd int) ([]byte, error) {
	n, err := unix.Flistxattr(fd, nil)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	names := make([]byte, 64<<10)
	if err == nil {
		n, err = unix.Flistxattr(fd, names)
	}
	if err != nil {
		return nil, fmt.Errorf("extended attributes: %w", err)
	}
	return names[:n], nil
}

// setAttributes sets the extended attributes from a file's header.
func setAttributes(fd int, h *tar.Header) error {
	for key, coded := range h.PAXRecords {
		escaped, ok := strings.CutPrefix(key, attributeRecord)
		if !ok {
			continue
		}
		name, err := url.QueryUnescape(escaped)
		if err != nil || !strings.HasPrefix(name, ours) {
			return fmt.Errorf("extended attribute %.80q is not allowed", escaped)
		}
		value, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			return fmt.Errorf("extended attribute %.80q: %w", name, err)
		}
		if err := unix.Fsetxattr(fd, name, value, 0); err != nil {
			return fmt.Errorf("extended attribute %.80q: %w", name, err)
		}
	}
	return nil
}
