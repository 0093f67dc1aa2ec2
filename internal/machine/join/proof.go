// SPDX-License-Identifier: Apache-2.0

// Package join issues node certificates to workers.
//
// A worker holds no cluster secret. It sends a certificate signing request together with a proof:
// the query string of a signed STS GetCallerIdentity request, which also signs the hash of the
// certificate request. A control-plane machine forwards the proof to its own STS endpoint, reads
// the instance id from the answer, checks the instance in EC2, and signs certificates for that
// instance's node name only (docs/design/0006-join.md).
//
// The package reads and writes no files; keys and certificates are PEM in memory.
package join

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// csrHashHeader carries the hash of the certificate request and is part of the signature, so an
// intercepted proof cannot be used with another key.
const csrHashHeader = "X-Slipway-Csr-Sha256"

// proofTTL is how long a proof is valid. Requests are sent immediately, and clocks differ a little.
const proofTTL = 60 * time.Second

// clockSkew is the tolerated difference between clocks, the same as AWS allows.
const clockSkew = 5 * time.Minute

const (
	stsAction  = "GetCallerIdentity"
	stsVersion = "2011-06-15"
	// emptyBodySHA256 is the SHA-256 of an empty body.
	emptyBodySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// STSEndpoint returns the URL of STS: base (AWS_ENDPOINT_URL) if it is set, otherwise the regional
// endpoint.
func STSEndpoint(base, region string) string {
	if base != "" {
		return strings.TrimSuffix(base, "/")
	}

	return "https://sts." + region + "." + partition.OfRegion(region).DNSSuffix
}

// Signer creates identity proofs with the instance's credentials.
type Signer struct {
	// Credentials of the instance's IAM role.
	Credentials aws.CredentialsProvider
	// Region whose STS verifies the proof.
	Region string
	// Endpoint is the URL of STS, see STSEndpoint.
	Endpoint string
	// Now is the clock.
	Now func() time.Time
}

// CreateProof returns the query string of a signed GetCallerIdentity request that is bound to csr.
func (s Signer) CreateProof(ctx context.Context, csr []byte) (string, error) {
	return s.sign(ctx, signedHeader{csrHashHeader, hashCSR(csr)})
}

// signedHeader is the header that a proof is bound to.
type signedHeader struct{ name, value string }

// sign returns the query string of a GetCallerIdentity request that is signed together with a header.
func (s Signer) sign(ctx context.Context, header signedHeader) (string, error) {
	creds, err := s.Credentials.Retrieve(ctx)
	if err != nil {
		return "", fmt.Errorf("get AWS credentials: %w", err)
	}

	query := url.Values{
		"Action":        {stsAction},
		"Version":       {stsVersion},
		"X-Amz-Expires": {strconv.Itoa(int(proofTTL.Seconds()))},
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/?"+query.Encode(), nil)
	if err != nil {
		return "", fmt.Errorf("sign for %s: %w", s.Endpoint, err)
	}

	req.Header.Set(header.name, header.value)
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, creds, req, emptyBodySHA256, "sts", s.Region, s.Now())
	if err != nil {
		return "", fmt.Errorf("sign for %s: %w", s.Endpoint, err)
	}

	u, err := url.Parse(signed)
	if err != nil {
		return "", fmt.Errorf("sign for %s: %w", s.Endpoint, err)
	}

	return u.RawQuery, nil
}

func hashCSR(csr []byte) string {
	sum := sha256.Sum256(csr)
	return hex.EncodeToString(sum[:])
}

// checkProof rejects every query string except a fresh, signed GetCallerIdentity request that signs
// the header, such as that with the hash of the certificate request. An accepted query is safe to send to STS
// because it can only reveal who signed it. checkProof returns the query encoded anew, so that STS
// parses exactly what was checked.
func checkProof(raw, header string, now time.Time) (string, error) {
	if len(raw) > 8192 {
		return "", errors.New("the proof is longer than 8192 bytes")
	}

	query, err := url.ParseQuery(raw)
	if err != nil {
		return "", errors.New("the proof is not a valid query string")
	}

	allowed := []string{
		"Action", "Version", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires",
		"X-Amz-Security-Token", "X-Amz-Signature", "X-Amz-SignedHeaders",
	}

	for key, values := range query {
		if !slices.Contains(allowed, key) || len(values) != 1 {
			return "", fmt.Errorf("the proof has an unexpected or repeated parameter %q", key)
		}
	}

	if query.Get("Action") != stsAction || query.Get("Version") != stsVersion {
		return "", errors.New("the proof is not for " + stsAction)
	}

	signed := strings.Split(query.Get("X-Amz-SignedHeaders"), ";")
	if !slices.Contains(signed, "host") || !slices.Contains(signed, strings.ToLower(header)) {
		return "", errors.New("the proof does not sign host and " + strings.ToLower(header))
	}

	return query.Encode(), checkProofTime(query, now)
}

func checkProofTime(query url.Values, now time.Time) error {
	at, err := time.Parse("20060102T150405Z", query.Get("X-Amz-Date"))
	if err != nil {
		return errors.New("the proof has no valid X-Amz-Date")
	}

	expires, err := strconv.Atoi(query.Get("X-Amz-Expires"))
	if err != nil || expires < 1 || expires > int(proofTTL.Seconds()) {
		return fmt.Errorf("the proof must expire after 1 to %d seconds", int(proofTTL.Seconds()))
	}

	if now.Before(at.Add(-clockSkew)) || now.After(at.Add(time.Duration(expires)*time.Second+clockSkew)) {
		return errors.New("the proof has expired or is not valid yet")
	}

	return nil
}
