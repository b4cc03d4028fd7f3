package agent

import "context"

// ProbeStore returns why the store at a location does not answer, or nil if it does.
func (a *Agent) ProbeStore(ctx context.Context, location string) error {
	s, err := a.stores.get(ctx, location)
	if err != nil {
		return err
	}
	return s.Probe(ctx)
}
