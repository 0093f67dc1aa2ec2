// SPDX-License-Identifier: Apache-2.0

// Package join gives a worker the certificates of its own node and no other: the worker proves with a signed STS
// request which instance it is. It knows no machine's files; it takes and returns PEM.
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
)

// csrHashHeader is signed with the request and holds the hash of the certificate request, so that a proof that somebody
// saw is worth nothing with another key.
const csrHashHeader = "X-Slipway-Csr-Sha256"

// proofTTL is how long a proof is good for: a request goes out at once, and clocks differ a little.
const proofTTL = 60 * time.Second

// clockSkew is how far a worker's clock may be off, as AWS allows.
const clockSkew = 5 * time.Minute

const (
	stsAction  = "GetCallerIdentity"
	stsVersion = "2011-06-15"
	// emptyBodySHA256 is the SHA-256 of no body.
	emptyBodySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// STSEndpoint is where GetCallerIdentity is asked: base if it is set (AWS_ENDPOINT_URL), else the region's own.
func STSEndpoint(base, region string) string {
	if base != "" {
		return strings.TrimSuffix(base, "/")
	}

	domain := "amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain = "amazonaws.com.cn"
	}

	return "https://sts." + region + "." + domain
}

// Signer makes proofs with the instance's credentials.
type Signer struct {
	Credentials aws.CredentialsProvider
	Region      string
	// Endpoint of STS.
	Endpoint string
	Now      func() time.Time
}

// CreateProof is the query of a signed GetCallerIdentity that is bound to csr.
func (s Signer) CreateProof(ctx context.Context, csr []byte) (string, error) {
	creds, err := s.Credentials.Retrieve(ctx)
	if err != nil {
		return "", fmt.Errorf("credentials of this instance: %w", err)
	}

	query := url.Values{
		"Action": {
			stsAction,
		}, "Version": {stsVersion}, "X-Amz-Expires": {strconv.Itoa(int(proofTTL.Seconds()))},
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/?"+query.Encode(), nil)
	if err != nil {
		return "", fmt.Errorf("sign for %s: %w", s.Endpoint, err)
	}

	req.Header.Set(csrHashHeader, hashCSR(csr))
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

// checkProof refuses every query that is not a fresh, signed GetCallerIdentity with our header and nothing else. What
// it lets through is safe to send to STS: it can only tell who signed it. It returns the query printed anew, so that STS
// reads exactly what was checked.
func checkProof(raw string, now time.Time) (string, error) {
	if len(raw) > 8192 {
		return "", errors.New("the proof is longer than 8192 bytes")
	}

	query, err := url.ParseQuery(raw)
	if err != nil {
		return "", errors.New("the proof is no query")
	}

	allowed := []string{
		"Action", "Version", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires",
		"X-Amz-Security-Token", "X-Amz-Signature", "X-Amz-SignedHeaders",
	}

	for key, values := range query {
		if !slices.Contains(allowed, key) || len(values) != 1 {
			return "", fmt.Errorf("the proof has parameter %q", key)
		}
	}

	if query.Get("Action") != stsAction || query.Get("Version") != stsVersion {
		return "", errors.New("the proof is not for " + stsAction)
	}

	signed := strings.Split(query.Get("X-Amz-SignedHeaders"), ";")
	if !slices.Contains(signed, "host") || !slices.Contains(signed, strings.ToLower(csrHashHeader)) {
		return "", errors.New("the proof does not sign host and " + strings.ToLower(csrHashHeader))
	}

	return query.Encode(), checkProofTime(query, now)
}

func checkProofTime(query url.Values, now time.Time) error {
	at, err := time.Parse("20060102T150405Z", query.Get("X-Amz-Date"))
	if err != nil {
		return errors.New("the proof has no date")
	}

	expires, err := strconv.Atoi(query.Get("X-Amz-Expires"))
	if err != nil || expires < 1 || expires > int(proofTTL.Seconds()) {
		return fmt.Errorf("the proof must be good for 1 to %d seconds", int(proofTTL.Seconds()))
	}

	if now.Before(at.Add(-clockSkew)) || now.After(at.Add(time.Duration(expires)*time.Second+clockSkew)) {
		return errors.New("the proof is not of this time")
	}

	return nil
}
