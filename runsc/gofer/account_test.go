package gofer

import (
	"errors"
	"testing"
	"time"

	"diapause.dev/runsc"
)

// TestAccount: a restore may have its image, and what its sessions may repeat.
func TestAccount(t *testing.T) {
	const image = 1 << 30
	var a Account
	now := time.Unix(1, 0)
	for session := range int64(maxSessions) {
		if err := a.begin(false); err != nil {
			t.Fatal(err)
		}
		a.opened(runsc.PagesFile, image)
		a.opened(runsc.PagesFile, image) // by its other lane
		n := int64(sessionSlack)
		if session == 0 {
			n += image
		}
		if err := a.spend(n, now); err != nil {
			t.Fatalf("session %d: %v", session, err)
		}
	}
	if err := a.spend(1, now.Add(time.Hour)); !errors.Is(err, ErrBreach) {
		t.Errorf("one byte too many: %v", err)
	}
	if err := a.begin(false); !errors.Is(err, ErrBreach) {
		t.Errorf("a session after a breach: %v", err)
	}
}

// TestAccountSessions: a restore has a number of sessions.
func TestAccountSessions(t *testing.T) {
	var a Account
	for range maxSessions {
		if err := a.begin(false); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.begin(false); !errors.Is(err, ErrBreach) {
		t.Errorf("one session too many: %v", err)
	}
}

// TestAccountOfFiles: a container that is started again reads its files again, for as long as its pod lives. More often
// than containers are started, nobody reads them.
func TestAccountOfFiles(t *testing.T) {
	const image = 1 << 30
	var a Account
	if err := a.begin(true); err != nil {
		t.Fatal(err)
	}
	a.opened(runsc.PagesFile, image)
	now := time.Unix(1, 0)
	for start := range 1000 {
		if start > 1 { // the first restart does not wait
			now = now.Add(filesAgain)
		}
		if err := a.spend(image, now); err != nil {
			t.Fatalf("start %d: %v", start, err)
		}
	}
	var err error
	for range filesBurst {
		if err == nil {
			err = a.spend(image, now)
		}
	}
	if !errors.Is(err, ErrBreach) {
		t.Errorf("%d times at once: %v", filesBurst, err)
	}
}
