// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/base64"
	"net/http"
)

// contentMD5 is the name of the checksum in the header Content-MD5.
const contentMD5 = "content-md5"

// HasBodyChecksum reports whether a request has a checksum of its body besides the one that is signed: the
// header Content-MD5, or a header or trailer x-amz-checksum-*.
func HasBodyChecksum(r *http.Request) bool {
	for _, name := range ChecksumNames() {
		if r.Header.Get(checksumHeader+name) != "" {
			return true
		}
	}

	return r.Header.Get("Content-Md5") != "" || r.Header.Get("X-Amz-Trailer") != ""
}

// BodyChecksums returns the verified checksums of a request's body by name, in base64. Call it after the body
// was read.
func BodyChecksums(r *http.Request) map[string]string {
	b, ok := r.Body.(*checkedBody)
	if !ok {
		return nil
	}

	out := map[string]string{}

	for name, c := range b.sums {
		if name != "content-sha256" && name != contentMD5 {
			out[name] = base64.StdEncoding.EncodeToString(c.hash.Sum(nil))
		}
	}

	return out
}
