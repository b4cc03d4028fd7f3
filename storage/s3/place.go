package s3

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"diapause.dev/storage/bucket"
)

// Scheme is what the location of a store in S3 begins with.
const Scheme = "s3://"

// Parameters of a location.
const (
	regionParameter    = "region"
	endpointParameter  = "endpoint"
	pathStyleParameter = "pathStyle"
)

// Want says what a location looks like, for errors.
const Want = "s3://bucket/prefix?region=REGION, for other services than Amazon's with " +
	"&endpoint=https://host:port and, if they want it, &pathStyle=true"

// Place says where a store is.
type Place struct {
	Bucket, Prefix string // the prefix is "", or ends in '/'
	Region         string // empty: that of the environment
	Endpoint       string // "https://host:port"; empty: Amazon's
	// PathStyle says whether the bucket is a part of the path, not of the host's name. Nil: as the library thinks.
	PathStyle *bool
}

var regionForm = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// Parse reads a location, "s3://bucket/prefix?region=R&endpoint=https://host&pathStyle=true".
func Parse(location string) (Place, error) { return bucket.Parse(location, Scheme, Want, parse) }

func parse(rest, query string) (p Place, err error) {
	p.Bucket, p.Prefix, _ = strings.Cut(rest, "/")
	if err := s3utils.CheckValidBucketNameStrict(p.Bucket); err != nil {
		return p, fmt.Errorf("bucket %q: %w", p.Bucket, err)
	}
	if s3utils.IsS3ExpressBucket(p.Bucket) {
		return p, fmt.Errorf("bucket %q is a directory bucket, which lists objects in no order", p.Bucket)
	}
	if p.Prefix, err = bucket.Prefix(p.Prefix); err != nil {
		return p, err
	}
	return p, bucket.Parameters(query, p.set)
}

func (p *Place) set(name, value string) error {
	switch name {
	case regionParameter:
		if !regionForm.MatchString(value) {
			return fmt.Errorf("%s %q: only a-z, 0-9 and '-' are allowed", name, value)
		}
		p.Region = value
	case endpointParameter:
		p.Endpoint = value
		return bucket.CheckEndpoint(name, value)
	case pathStyleParameter:
		if !slices.Contains([]string{"true", "false"}, value) {
			return fmt.Errorf("%s %q: it is true or false", name, value)
		}
		style := value == "true"
		p.PathStyle = &style
	default:
		return fmt.Errorf("unknown parameter %q", name)
	}
	return nil
}

// String returns the location, in the syntax of Parse.
func (p Place) String() string {
	s := strings.TrimSuffix(Scheme+p.Bucket+"/"+p.Prefix, "/")
	var parameters []string
	if p.Region != "" {
		parameters = append(parameters, regionParameter+"="+p.Region)
	}
	if p.Endpoint != "" {
		parameters = append(parameters, endpointParameter+"="+p.Endpoint)
	}
	if p.PathStyle != nil {
		parameters = append(parameters, pathStyleParameter+"="+strconv.FormatBool(*p.PathStyle))
	}
	if len(parameters) > 0 {
		s += "?" + strings.Join(parameters, "&")
	}
	return s
}

// region returns the region that requests are signed for.
func (p Place) region() (string, error) {
	r := cmp.Or(p.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if r == "" && p.Endpoint != "" {
		r = "us-east-1" // which other services take for any
	}
	if r == "" {
		return "", fmt.Errorf("in which region is the bucket? Add ?%s=REGION to the location, or set AWS_REGION",
			regionParameter)
	}
	return r, nil
}

// host returns the host that requests go to, and whether they go there by TLS.
func (p Place) host() (host string, secure bool) {
	if p.Endpoint == "" {
		return "s3.amazonaws.com", true // the library puts the region into it
	}
	host, secure = strings.CutPrefix(p.Endpoint, "https://")
	return strings.TrimPrefix(host, "http://"), secure
}

func (p Place) lookup() minio.BucketLookupType {
	switch {
	case p.PathStyle == nil:
		return minio.BucketLookupAuto
	case *p.PathStyle:
		return minio.BucketLookupPath
	}
	return minio.BucketLookupDNS
}

func (b *Backend) key(name string) string { return b.place.Prefix + name }
