package format

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// validate checks everything that the rest of the package relies on in a manifest. The caller adds to the error whether
// the manifest was read or is about to be written.
func validate(m *Manifest) error {
	if err := CheckKey(m.Meta.Key); err != nil {
		return err
	}
	if len(m.Packs) > maxPacks || len(m.Files) > maxFiles {
		return fmt.Errorf("%d packs and %d files, at most %d and %d allowed", len(m.Packs), len(m.Files), maxPacks, maxFiles)
	}
	if err := validatePacks(m.Packs); err != nil {
		return err
	}
	names, printed := map[string]bool{}, m.Fingerprinted()
	for i := range m.Files {
		f := &m.Files[i]
		if names[f.Name] {
			return fmt.Errorf("file %q twice", f.Name)
		}
		names[f.Name] = true
		if printed && len(f.Prints) != len(f.Chunks) {
			return fmt.Errorf("file %.80q: %d fingerprints of %d chunks", f.Name, len(f.Prints), len(f.Chunks))
		}
		if err := validateFile(m, f); err != nil {
			return fmt.Errorf("file %.80q: %w", f.Name, err)
		}
	}
	return nil
}

func validatePacks(packs []Pack) error {
	ids := map[PackID]bool{}
	for _, p := range packs {
		if p.Size < PackHeaderSize || p.Size > maxPack {
			return fmt.Errorf("pack %s: size %d", p.ID, p.Size)
		}
		if ids[p.ID] {
			return fmt.Errorf("pack %s twice", p.ID)
		}
		ids[p.ID] = true
	}
	return nil
}

func validateFile(m *Manifest, f *File) error {
	if err := checkFileName(f.Name); err != nil {
		return err
	}
	var size int64
	for i := range f.Chunks {
		if err := validateChunk(m, &f.Chunks[i]); err != nil {
			return fmt.Errorf("chunk %d: %w", i, err)
		}
		size += int64(f.Chunks[i].Raw)
	}
	if size != f.Size {
		return fmt.Errorf("size %d, but its chunks hold %d", f.Size, size)
	}
	return nil
}

func validateChunk(m *Manifest, c *Chunk) error {
	if c.Raw == 0 || c.Raw > MaxChunk {
		return fmt.Errorf("raw length %d", c.Raw)
	}
	switch c.Codec {
	case CodecZero:
		if *c != (Chunk{Raw: c.Raw}) {
			return errors.New("zero, but with a place or a digest")
		}
		return nil
	case CodecNone:
		if c.Stored != c.Raw+m.overhead() {
			return fmt.Errorf("stored length %d of %d raw bytes", c.Stored, c.Raw)
		}
	case CodecZstd, CodecS2:
		if c.Stored <= m.overhead() || c.Stored >= c.Raw+m.overhead() {
			return fmt.Errorf("stored length %d of %d raw bytes", c.Stored, c.Raw)
		}
	default:
		return fmt.Errorf("%w: %s", ErrFormat, c.Codec)
	}
	if int64(c.Pack) >= int64(len(m.Packs)) {
		return fmt.Errorf("pack %d of %d", c.Pack, len(m.Packs))
	}
	if c.Offset < PackHeaderSize || int64(c.Offset)+int64(c.Stored) > m.Packs[c.Pack].Size {
		return fmt.Errorf("bytes %d+%d of a pack of %d", c.Offset, c.Stored, m.Packs[c.Pack].Size)
	}
	return nil
}

// checkFileName bounds a label that comes from outside and is shown to people.
func checkFileName(name string) error {
	if name == "" || len(name) > maxFileName || !utf8.ValidString(name) {
		return fmt.Errorf("%w: file name of %d bytes: want 1 to %d bytes of UTF-8", ErrInvalidName, len(name), maxFileName)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%w: file name %q", ErrInvalidName, name)
		}
	}
	return nil
}
