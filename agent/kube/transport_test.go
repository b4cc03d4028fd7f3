package kube_test

import (
	"context"
	"net/http"
)

// killed is an agent's connection to the API server. It ends with the agent.
type killed struct {
	boot context.Context
	next http.RoundTripper
}

func (k killed) RoundTrip(r *http.Request) (*http.Response, error) {
	if k.boot.Err() != nil {
		return nil, errKilled
	}
	return k.next.RoundTrip(r)
}
