package restore

// Restores of root file systems end differently from those of whole pods. A container that is started again in the
// sandbox reads its files again. So the sidecar and the request stay as long as the sandbox does. The shim reports when
// all files have been loaded.

// Loaded notes that the shim has reported that all containers of a sandbox have all their files. It releases the
// snapshot, which may then be removed.
func (rs *Restores) Loaded(request string) error {
	r, err := rs.registry.find(rs.Life.Context(), request)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.Loaded = true
	r.on(allLoaded)
	r.mu.Unlock()
	if err := rs.registry.remember(r); err != nil { // then the next agent holds the snapshot as long as the sandbox lives
		rs.log.Warn("restore not noted as loaded", "request", request, "error", err)
	}
	r.image.Release()
	r.conclude(nil, rs.Metrics, rs.log)
	return nil
}
