package shim

import "diapause.dev/runsc/sleep"

// catch watches the packets that come for the sandbox until repeat is called, which sends it those of TCP once more.
//
// While its kernel is saved, a sandbox drops segments of TCP (beforeSave of gVisor's package tcp freezes the queue of
// each endpoint). Who has sent one repeats it after 200 ms at the earliest, and the first one of a connection after a
// second. That is longer than the whole pause. A pod that is to fall asleep is watched already, and runOn repeats.
func (p *podSleep) catch() (repeat func()) {
	if p.network == nil || p.watch.Load() != nil {
		return func() {}
	}
	w, err := sleep.NewWaker(p.network, nil, nil)
	if err != nil {
		p.warn(err, "watch for packets while it is saved")
		return func() {}
	}
	return func() {
		p.warn(w.Repeat(), "repeat packets that came while it was saved")
		p.warn(w.Close(), "watch for packets while it was saved")
	}
}
