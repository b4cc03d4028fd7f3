package bucket

import "testing"

// TestHostileProxy: the identity that the platform gives this program is not asked for through a proxy, which would
// read it.
func TestHostileProxy(t *testing.T) {
	for host, want := range map[string]bool{
		"s3.example.com": false, "10.0.0.1": false, "2600::1": false, "": false,
		"169.254.169.254": true, "169.254.170.23": true, "fd00:ec2::23": true, "fe80::1": true,
	} {
		if got := ofNode(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
