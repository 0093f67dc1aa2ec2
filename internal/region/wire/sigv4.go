// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	signingAlgorithm = "AWS4-HMAC-SHA256"
	timeLayout       = "20060102T150405Z"
	// clockSkew is the maximum difference between the clocks of client and region. It is AWS's limit.
	clockSkew = 15 * time.Minute
	// maxPresignedLifetime is the maximum lifetime of a presigned URL. It is S3's limit: seven days.
	maxPresignedLifetime = 7 * 24 * time.Hour
	// defaultPresignedLifetime is the lifetime of a presigned request without X-Amz-Expires, such as STS's
	// GetCallerIdentity.
	defaultPresignedLifetime = 15 * time.Minute
)

// AccessKey is an access key with the identity that it belongs to.
type AccessKey struct {
	Secret  string    // secret access key
	Token   string    // session token; empty for a long-term key
	Expires time.Time // zero for a long-term key
	Caller  Caller    // without the access key ID, which the Verifier sets
}

// KeyStore finds access keys. IAM implements it.
type KeyStore interface {
	// FindKey returns an access key. ok is false if it does not exist or is not active.
	FindKey(accessKeyID string) (k AccessKey, ok bool)
}

// Signature is the parsed signature of a request (AWS Signature Version 4).
type Signature struct {
	AccessKeyID string // of the key that signed the request
	Region      string // of the credential scope
	Service     string // signing name of the credential scope, such as ec2
	Presigned   bool   // the signature is in the query string, not in a header

	scopeDate     string // date of the credential scope, such as 20260102
	signedAt      time.Time
	lifetime      time.Duration // of a presigned request
	sessionToken  string        // empty for a long-term key
	signedHeaders []string      // names in lower case, sorted
	signature     string        // in hexadecimal
}

// ParseSignature parses the signature of a request. It returns nil and no error for a request without one.
func ParseSignature(r *http.Request) (*Signature, error) {
	if isVersion2(r) {
		return nil, newErrorf(
			codeInvalidRequest,
			"The authorization mechanism you have provided is not supported. Please use %s.",
			signingAlgorithm,
		)
	}

	if h := r.Header.Get("Authorization"); h != "" {
		return parseAuthorizationHeader(r, h)
	}

	q := r.URL.Query()
	if q.Get("X-Amz-Algorithm") == "" {
		return nil, nil
	}

	if q.Get("X-Amz-Algorithm") != signingAlgorithm {
		return nil, newIncompleteSignatureError("the algorithm is not " + signingAlgorithm)
	}

	s := &Signature{
		Presigned:    true,
		sessionToken: q.Get("X-Amz-Security-Token"),
		signature:    q.Get("X-Amz-Signature"),
	}

	s.signedHeaders = strings.Split(q.Get("X-Amz-SignedHeaders"), ";")
	s.lifetime = defaultPresignedLifetime
	if text := q.Get("X-Amz-Expires"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 0 || time.Duration(seconds)*time.Second > maxPresignedLifetime {
			return nil, newErrorf(
				codeAuthorizationQueryParameters,
				"X-Amz-Expires must be a number of seconds up to 604800",
			)
		}

		s.lifetime = time.Duration(seconds) * time.Second
	}

	return s, s.parseScope(q.Get("X-Amz-Credential"), q.Get("X-Amz-Date"))
}

// isVersion2 reports whether a request has a signature of the former version 2 of S3, in a header or in its URL.
func isVersion2(r *http.Request) bool {
	q := r.URL.Query()

	return strings.HasPrefix(r.Header.Get("Authorization"), "AWS ") || q.Has("AWSAccessKeyId") && q.Has("Signature")
}

func parseAuthorizationHeader(r *http.Request, h string) (*Signature, error) {
	rest, ok := strings.CutPrefix(h, signingAlgorithm+" ")
	if !ok {
		return nil, newIncompleteSignatureError(
			"the Authorization header does not begin with " + signingAlgorithm,
		)
	}

	s := &Signature{sessionToken: r.Header.Get("X-Amz-Security-Token")}
	credential := ""

	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			credential = value
		case "SignedHeaders":
			s.signedHeaders = strings.Split(value, ";")
		case "Signature":
			s.signature = value
		}
	}

	date := r.Header.Get("X-Amz-Date")
	if date == "" {
		if t, err := http.ParseTime(r.Header.Get("Date")); err == nil {
			date = t.UTC().Format(timeLayout)
		}
	}

	return s, s.parseScope(credential, date)
}

func newIncompleteSignatureError(why string) *Error {
	return newErrorf(
		codeIncompleteSignature,
		"The request signature does not conform to AWS standards: %s",
		why,
	)
}

// parseScope parses the credential scope and the time of the signature.
func (s *Signature) parseScope(credential, date string) error {
	parts := strings.Split(credential, "/")
	if len(parts) != 5 || parts[4] != "aws4_request" {
		return newIncompleteSignatureError(
			"the credential's scope is not KEY/DATE/REGION/SERVICE/aws4_request",
		)
	}

	t, err := time.Parse(timeLayout, date)

	switch {
	case err != nil:
		return newIncompleteSignatureError("the date is missing or not of the form YYYYMMDDTHHMMSSZ")
	case t.Format("20060102") != parts[1]:
		return newIncompleteSignatureError("the date is not that of the credential's scope")
	case s.signature == "":
		return newIncompleteSignatureError("the signature is missing")
	case !slices.Contains(s.signedHeaders, "host"):
		return newIncompleteSignatureError("the header host is not signed")
	}

	s.AccessKeyID = parts[0]
	s.scopeDate = parts[1]
	s.Region = parts[2]
	s.Service = parts[3]
	s.signedAt = t

	return nil
}

// Verifier verifies signatures.
type Verifier struct {
	Keys   KeyStore         // the access keys
	Region string           // the only region that signatures may be for
	Now    func() time.Time // the region's clock
}

// Verify verifies the signature s of the request r to a service, and returns the caller. It replaces r's body
// by one that verifies the hash and the checksums while it is read, and that has no chunk framing. The error
// is an [Error] with the code by which SDKs decide whether to correct their clock or to get new credentials.
func (v Verifier) Verify(r *http.Request, s *Signature, service Service) (Caller, error) {
	if s == nil {
		return Caller{}, newSignatureError(service.Protocol, missingToken)
	}

	key, ok := v.Keys.FindKey(s.AccessKeyID)
	if !ok {
		return Caller{}, newSignatureError(service.Protocol, unknownKey)
	}

	if err := v.checkKeyAndScope(s, key, service); err != nil {
		return Caller{}, err
	}

	hash, err := payloadHash(r, s, service)
	if err != nil {
		return Caller{}, err
	}

	signing := signingKey(key.Secret, s)
	want := hexHMAC(signing, s.stringToSign(buildCanonicalRequest(r, s, service.Protocol, hash)))
	if subtle.ConstantTimeCompare([]byte(want), []byte(s.signature)) != 1 {
		return Caller{}, newSignatureError(service.Protocol, signatureMismatch)
	}

	if service.Protocol == S3Protocol {
		if err := s.checkSignedHeaders(r.Header); err != nil {
			return Caller{}, err
		}
	}

	caller := key.Caller
	caller.AccessKeyID = s.AccessKeyID

	return caller, replaceBody(r, s, hash, signing)
}

// checkSignedHeaders refuses a request to S3 with an x-amz- header that is not signed: whoever has a presigned URL could
// change with it what is stored. The hash of the contents needs no signature of its own.
func (s *Signature) checkSignedHeaders(h http.Header) error {
	var unsigned []string

	for name := range h {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, amzPrefix) && lower != "x-amz-content-sha256" &&
			!slices.Contains(s.signedHeaders, lower) {
			unsigned = append(unsigned, lower)
		}
	}

	if len(unsigned) == 0 {
		return nil
	}

	slices.Sort(unsigned)

	err := newStatusError(
		codeAccessDenied,
		http.StatusForbidden,
		"There were headers present in the request which were not signed",
	)
	err.Details = []ErrorDetail{{Name: "HeadersNotSigned", Value: strings.Join(unsigned, ", ")}}

	return err
}

// checkKeyAndScope checks the session token, the times and the credential scope of a signature.
func (v Verifier) checkKeyAndScope(s *Signature, key AccessKey, service Service) error {
	if subtle.ConstantTimeCompare([]byte(key.Token), []byte(s.sessionToken)) != 1 {
		return newSignatureError(service.Protocol, unknownKey)
	}

	now := v.Now()
	if err := s.checkSigningTime(now, service.Protocol); err != nil {
		return err
	}

	if !key.Expires.IsZero() && !now.Before(key.Expires) {
		return newSignatureError(service.Protocol, expiredToken)
	}

	if s.Region != v.Region || s.Service != service.Name {
		e := newSignatureError(service.Protocol, signatureMismatch)
		e.Message = "Credential should be scoped to region " + v.Region + " and service " + service.Name + "."
		return e
	}

	return nil
}

// checkSigningTime rejects a request that was signed too long ago or in the future.
func (s *Signature) checkSigningTime(now time.Time, p Protocol) error {
	switch {
	case s.signedAt.After(now.Add(clockSkew)), !s.Presigned && s.signedAt.Before(now.Add(-clockSkew)):
		return newSignatureError(p, clockSkewed)
	case s.Presigned && now.After(s.signedAt.Add(s.lifetime)):
		return newSignatureError(p, presignedExpired)
	}

	return nil
}

// payloadHash returns the hash of the body in the canonical request. S3 requests have it in a header; for
// other services, it reads and hashes the body.
func payloadHash(r *http.Request, s *Signature, service Service) (string, error) {
	if service.Protocol == S3Protocol {
		if h := r.Header.Get("X-Amz-Content-Sha256"); h != "" {
			return h, nil
		}

		if s.Presigned {
			return unsignedPayload, nil
		}

		return "", newErrorf(
			codeInvalidRequest,
			"Missing required header for this request: x-amz-content-sha256",
		)
	}

	body, err := readBody(r)
	if err != nil {
		return "", err
	}

	r.Body = io.NopCloser(bytes.NewReader(body))
	sum := sha256.Sum256(body)

	return hex.EncodeToString(sum[:]), nil
}

// buildCanonicalRequest returns the canonical request of Signature Version 4.
func buildCanonicalRequest(r *http.Request, s *Signature, p Protocol, hash string) string {
	var b strings.Builder
	b.WriteString(r.Method + "\n" + canonicalPath(r.URL, p) + "\n" + canonicalQuery(r.URL.RawQuery) + "\n")
	for _, name := range s.signedHeaders {
		b.WriteString(name + ":" + canonicalHeader(r, name) + "\n")
	}

	b.WriteString("\n" + strings.Join(s.signedHeaders, ";") + "\n" + hash)

	return b.String()
}

// canonicalPath returns the path, escaped once for S3 and twice for other REST services.
func canonicalPath(u *url.URL, p Protocol) string {
	if u.Path == "" {
		return "/"
	}

	if p == RESTProtocol || p == RESTJSONProtocol {
		return encodePath(u.EscapedPath())
	}

	return encodePath(u.Path)
}

// canonicalQuery returns the parameters of a query string, sorted by their escaped names and values.
func canonicalQuery(raw string) string {
	var pairs []string
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}

		name, value, _ := strings.Cut(part, "=")
		n, errName := url.QueryUnescape(name)
		v, errValue := url.QueryUnescape(value)
		if errName != nil || errValue != nil || n == "X-Amz-Signature" {
			continue
		}

		pairs = append(pairs, uriEncode(n)+"="+uriEncode(v))
	}

	slices.SortFunc(pairs, func(a, b string) int {
		an, av, _ := strings.Cut(a, "=")
		bn, bv, _ := strings.Cut(b, "=")
		if c := strings.Compare(an, bn); c != 0 {
			return c
		}

		return strings.Compare(av, bv)
	})

	return strings.Join(pairs, "&")
}

// canonicalHeader returns the value of a signed header. Go's server removes some headers from the map of
// headers.
func canonicalHeader(r *http.Request, name string) string {
	switch name {
	case "host":
		return r.Host
	case "content-length":
		return strconv.FormatInt(r.ContentLength, 10)
	case "transfer-encoding":
		return strings.Join(r.TransferEncoding, ",")
	}

	values := slices.Clone(r.Header.Values(name))
	for i, v := range values {
		values[i] = strings.Join(strings.Fields(v), " ")
	}

	return strings.Join(values, ",")
}

// encodePath is uriEncode for a path: slashes stay.
func encodePath(path string) string { return strings.ReplaceAll(uriEncode(path), "%2F", "/") }

// uriEncode encodes text as AWS does: everything but letters, digits and -._~ becomes %XX.
func uriEncode(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '-', c == '.', c == '_', c == '~':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}

	return b.String()
}

func (s *Signature) scopeText() string {
	return s.scopeDate + "/" + s.Region + "/" + s.Service + "/aws4_request"
}

func (s *Signature) stringToSign(canonicalRequest string) string {
	sum := sha256.Sum256([]byte(canonicalRequest))

	return strings.Join([]string{
		signingAlgorithm,
		s.signedAt.Format(timeLayout),
		s.scopeText(),
		hex.EncodeToString(sum[:]),
	}, "\n")
}

func signingKey(secret string, s *Signature) []byte {
	k := hmacSHA256([]byte("AWS4"+secret), s.scopeDate)
	k = hmacSHA256(k, s.Region)
	k = hmacSHA256(k, s.Service)

	return hmacSHA256(k, "aws4_request")
}

func hmacSHA256(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexHMAC(key []byte, text string) string { return hex.EncodeToString(hmacSHA256(key, text)) }
