package keyring_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/keyring"
)

func TestParse(t *testing.T) {
	const known, all = storage.PlainKnown, storage.PlainAll
	a, b := strings.Repeat("a1", 32), strings.Repeat("B2", 32)
	for _, test := range []struct {
		name, file string
		current    bool
		former     int
		plain      storage.Plain
		ok         bool
	}{
		{"raw", strings.Repeat("\x00\n", 16), true, 0, known, true},
		{"one", a, true, 0, known, true},
		{"newline", a + "\r\n", true, 0, known, true},
		{"several", "# keys\n" + a + "\n\n" + b + "\n" + a, true, 2, known, true},
		{"transition", a + "\nnone", true, 0, all, true},
		{"back", "none\n" + a, false, 1, all, true},
		{"none", "none\n", false, 0, all, true},
		{"only", a + "\nencrypted-only\n" + b, true, 1, storage.PlainNone, true},
		{"only first", "encrypted-only\n" + a, true, 0, storage.PlainNone, true},
		{"only alone", "encrypted-only", false, 0, known, false},
		{"contradiction", a + "\nnone\nencrypted-only", false, 0, known, false},
		{"empty", "", false, 0, known, false},
		{"comment", "# nothing", false, 0, known, false},
		{"short", a[1:], false, 0, known, false},
		{"no hex", "x" + a[1:], false, 0, known, false},
		{"second bad", a + "\n" + b[2:], false, 0, known, false},
		{"huge", strings.Repeat(a+"\n", 2000), false, 0, known, false},
	} {
		keys, err := keyring.Parse([]byte(test.file))
		if (err == nil) != test.ok || err != nil &&
			(!errors.Is(err, storage.ErrKey) || strings.Contains(err.Error(), a[2:])) {
			t.Errorf("%s: %v", test.name, err)
		}
		if (keys.Current != nil) != test.current || len(keys.Former) != test.former || keys.Plain != test.plain {
			t.Errorf("%s: %+v", test.name, keys)
		}
	}
}

func TestDir(t *testing.T) {
	path := t.TempDir()
	for name, content := range map[string]string{"default": strings.Repeat("01", 32), "team": strings.Repeat("02", 32)} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := keyring.Dir(path)
	for namespace, first := range map[string]byte{"team": 2, "other": 1} {
		keys, err := d.Keys(namespace)
		if err != nil || keys.Current[0] != first {
			t.Errorf("%s: %v", namespace, err)
		}
	}
	for _, hostile := range []string{"", "..", "../x", "a/b", "A"} {
		if _, err := d.Keys(hostile); !errors.Is(err, storage.ErrInvalidName) {
			t.Errorf("%q: %v", hostile, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(strings.Repeat("01", 32) + "\nnone\n"))
	f.Add(make([]byte, 32))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := keyring.Parse(data)
		if err != nil && !errors.Is(err, storage.ErrKey) {
			t.Fatal(err)
		}
		if err == nil && keys.Current == nil && len(keys.Former) == 0 && keys.Plain != storage.PlainAll {
			t.Fatal("nothing")
		}
	})
}
