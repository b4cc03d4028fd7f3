package capture

// Pages takes the pages of a paused sandbox.
type Pages interface {
	// Register announces a memory file by its number and a descriptor. The descriptor stays valid until the last
	// Capture. Register is called before the first Capture of that file, by one goroutine at a time.
	Register(file int, fd int, size uint64) error

	// Capture takes runs of pages, and sets their At. Once it has returned, the pages may change. The caller has
	// checked that they lie within the registered size. Capture is called concurrently, for different runs.
	Capture(b *Batch) error
}

// Discard is a Pages that accepts everything and copies nothing. No other Pages can have a shorter pause.
type Discard struct{}

// Register implements Pages.
func (Discard) Register(int, int, uint64) error { return nil }

// Capture implements Pages.
func (Discard) Capture(*Batch) error { return nil }

// Refuse is a Pages that takes nothing and fails with its error: the save fails, and the sandbox runs on. This
// way a workload that saves its own sandbox learns of the failure. If instead the gofer hung up before the save
// began, gVisor would not tell the workload.
type Refuse struct{ Err error }

// Register implements Pages.
func (r Refuse) Register(int, int, uint64) error { return r.Err }

// Capture implements Pages.
func (r Refuse) Capture(*Batch) error { return r.Err }
