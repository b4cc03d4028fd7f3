package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

// sharedTime bounds the start and the end of a bed that all tests of a package share.
const sharedTime = time.Minute

// MainShared runs the tests of m in one bed that they share, and exits. It hands the bed to use
// before the first test; when tests have failed it saves the log of containerd
// to a file, in the way of [SaveLog].
func MainShared(m *testing.M, use func(ctx context.Context, b *Bed) error) {
	MainWith(func() (int, error) { return runShared(m, use) })
}

func runShared(m *testing.M, use func(context.Context, *Bed) error) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), sharedTime)
	defer cancel()
	b, err := Start(ctx, Options{})
	if err != nil {
		return 1, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), sharedTime)
		defer cancel()
		err = errors.Join(err, b.Close(ctx))
	}()
	if err := use(ctx, b); err != nil {
		return 1, err
	}
	if code = m.Run(); code == 0 {
		return 0, nil
	}
	dir, err := logsDir("all tests")
	shown := b.Containerd.Log()
	if err == nil {
		shown, err = saveLog(dir, "containerd", shown)
	}
	fmt.Fprintln(os.Stderr, shown)
	return code, err
}
