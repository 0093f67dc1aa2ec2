// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// NotImplemented returns the error for what the region does not implement. name is the operation, header,
// query parameter or member as the client wrote it.
func NotImplemented(name string) *Error {
	err := newStatusError(
		codeNotImplemented,
		http.StatusNotImplemented,
		"A header or query you provided implies functionality that is not implemented: "+name,
	)
	err.Details = []ErrorDetail{{"Header", name}}

	return err
}

const amzPrefix = "x-amz-"

// checkRESTNames refuses a request with a query parameter or an x-amz- header that the input shape t does not
// have: the operation would otherwise do something else than the client asked for.
func checkRESTNames(r *http.Request, route Route, t reflect.Type) error {
	known := locatedNames(t)
	for _, name := range route.Names {
		known[name] = true
	}

	for _, name := range sortedKeys(r.URL.Query()) {
		if !known[name] && !known[strings.ToLower(name)] && !isProtocolName(strings.ToLower(name)) {
			return NotImplemented(name)
		}
	}

	for _, name := range sortedKeys(r.Header) {
		name = strings.ToLower(name)
		if strings.HasPrefix(name, amzPrefix) && !known[name] && !isProtocolName(name) &&
			!strings.HasPrefix(name, metadataPrefix) {
			return NotImplemented(name)
		}
	}

	return nil
}

// locatedNames returns the query parameters of a shape, and its headers in lower case.
func locatedNames(t reflect.Type) map[string]bool {
	known := map[string]bool{}
	for f := range t.Fields() {
		if f.Anonymous { // see eachMember
			maps.Copy(known, locatedNames(f.Type))
		}

		tag := f.Tag
		switch tag.Get("location") {
		case "querystring":
			known[tag.Get("locationName")] = true
		case "header":
			known[strings.ToLower(tag.Get("locationName"))] = true
		}
	}

	return known
}

// metadataPrefix is the prefix of the headers with the metadata of an object.
const metadataPrefix = "x-amz-meta-"

// isProtocolName reports whether a header or query parameter, in lower case, belongs to the protocol: to the
// signature, to the body and its checksums, or to the client.
func isProtocolName(name string) bool {
	if checksum, ok := strings.CutPrefix(name, checksumHeader); ok {
		return NewChecksum(checksum) != nil
	}

	return slices.Contains(signatureNames(), name) || slices.Contains([]string{
		"x-amz-decoded-content-length",
		"x-amz-request-payer", // buckets of the region are never paid for by the requester
		"x-amz-sdk-checksum-algorithm",
		"x-amz-te",
		"x-amz-trailer",
		"x-amz-user-agent",
		"x-id", // the operation's name, which SDKs add
	}, name)
}

// signatureNames returns the headers and query parameters of a signature, in lower case: version 4, and
// version 2 of a presigned URL.
func signatureNames() []string {
	return []string{
		"x-amz-algorithm",
		"x-amz-content-sha256",
		"x-amz-credential",
		"x-amz-date",
		"x-amz-expires",
		"x-amz-security-token",
		"x-amz-signature",
		"x-amz-signedheaders",
		"awsaccesskeyid",
		"expires",
		"signature",
	}
}

// MoveQueryToHeaders sets the headers that a presigned URL has in its query string, as SDKs presign them: S3
// treats them alike.
func MoveQueryToHeaders(r *http.Request) {
	query := r.URL.Query()
	for name, values := range query {
		lower := strings.ToLower(name)
		if !strings.HasPrefix(lower, amzPrefix) || slices.Contains(signatureNames(), lower) {
			continue
		}

		if r.Header.Get(name) == "" {
			r.Header.Set(name, strings.Join(values, ","))
		}

		query.Del(name)
	}

	u := *r.URL
	u.RawQuery = query.Encode()
	r.URL = &u
}
