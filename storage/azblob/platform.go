package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
)

// scope is what tokens are for: the storage of all of Azure's clouds.
const scope = "https://storage.azure.com/.default"

// ofPlatform returns a policy that shows tokens of this process's identity.
func ofPlatform(o azcore.ClientOptions) (policy.Policy, error) {
	o.Retry = policy.RetryOptions{MaxRetries: 2, TryTimeout: bucket.PlatformTime, MaxRetryDelay: bucket.PlatformTime}
	cred, err := identity(o)
	if err != nil {
		return nil, refusal(bucket.ErrCredentials, err)
	}
	return runtime.NewBearerTokenPolicy(tokens{cred}, []string{scope}, nil), nil
}

// identity returns the one identity that this process is meant to have: a workload's, a service principal's that the
// environment names, or else the machine's. If the one that is meant cannot be used, no other is tried.
func identity(o azcore.ClientOptions) (azcore.TokenCredential, error) {
	switch {
	case os.Getenv("AZURE_FEDERATED_TOKEN_FILE") != "":
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: o})
	case os.Getenv("AZURE_CLIENT_SECRET") != "", os.Getenv("AZURE_CLIENT_CERTIFICATE_PATH") != "":
		return azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{ClientOptions: o})
	}
	machine := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: o}
	if id := os.Getenv("AZURE_CLIENT_ID"); id != "" {
		machine.ID = azidentity.ClientID(id)
	}
	return azidentity.NewManagedIdentityCredential(machine)
}

// tokens gives the errors of an identity their kinds.
type tokens struct{ azcore.TokenCredential }

// GetToken implements azcore.TokenCredential.
func (t tokens) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := t.TokenCredential.GetToken(ctx, o)
	switch {
	case err == nil:
		return token, nil
	case ctx.Err() != nil:
		return token, ctx.Err()
	}
	kind := bucket.ErrCredentials
	if failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok && passes(failed.RawResponse) {
		kind = storage.ErrUnavailable
	}
	return token, refusal(kind, err)
}

// passes reports whether the answer of an identity's service says that it fails for now.
func passes(r *http.Response) bool {
	return r != nil && (r.StatusCode == http.StatusTooManyRequests || r.StatusCode >= http.StatusInternalServerError)
}

// tokenError says why there is no token.
type tokenError struct {
	kind error
	text string
}

// maxText bounds the text of a tokenError, in bytes. The library adds answers to its own.
const maxText = 1000

func refusal(kind, err error) error {
	return &tokenError{kind, fmt.Sprintf("%v: %.*s", kind, maxText, oneLine(err.Error()))}
}

func (e *tokenError) Error() string { return e.text }

func (e *tokenError) Unwrap() error { return e.kind }

// NonRetriable tells the library not to repeat the request: it would lack the token again.
func (e *tokenError) NonRetriable() {}
