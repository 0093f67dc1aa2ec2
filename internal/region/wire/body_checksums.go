// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/md5"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"hash"
	"io"
	"net/http"
	"strings"
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

// bodyChecksum is an expected checksum of a body.
type bodyChecksum struct {
	hash    hash.Hash
	want    []byte    // nil if it is in a trailer
	code    errorCode // empty means codeBadDigest with its usual message
	message string    // of the error
}

// checkedBody computes the checksums of a body and compares them at its end.
type checkedBody struct {
	src    io.Reader
	closer io.Closer
	chunks *chunkReader
	sums   map[string]bodyChecksum
}

func (b *checkedBody) addChecksum(c bodyChecksum, name string) { b.sums[name] = c }

// describesObject reports whether the checksums in a request's headers are those of an object and not of the
// request's body: the request that completes a multipart upload.
func describesObject(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}

// addMD5 adds the checksum of the header Content-MD5; empty: there is none.
func (b *checkedBody) addMD5(text string) error {
	if text == "" {
		return nil
	}

	sum, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(sum) != md5.Size {
		return newErrorf(codeInvalidDigest, "The Content-MD5 you specified was invalid.")
	}

	b.addChecksum(bodyChecksum{
		hash:    md5.New(),
		want:    sum,
		message: "The Content-MD5 you specified did not match what we received.",
		code:    codeBadDigest,
	}, contentMD5)

	return nil
}

// addHeaderChecksums adds the checksums of the headers. ofBody is false if x-amz-checksum-* are not of the body.
func (b *checkedBody) addHeaderChecksums(h http.Header, ofBody bool) error {
	given := 0

	for _, name := range ChecksumNames() {
		text := h.Get(checksumHeader + name)
		if text == "" || !ofBody {
			continue
		}

		if given++; given > 1 {
			return newErrorf(
				codeInvalidRequest,
				"Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
			)
		}

		sum, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return newChecksumError(name)
		}

		b.addChecksum(bodyChecksum{hash: NewChecksum(name), want: sum}, name)
	}

	if err := b.addMD5(h.Get("Content-Md5")); err != nil {
		return err
	}

	for _, trailer := range h.Values("X-Amz-Trailer") {
		name, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(trailer)), checksumHeader)
		if !ok || b.chunks == nil || NewChecksum(name) == nil {
			return newErrorf(
				codeInvalidRequest,
				"The value specified in the x-amz-trailer header is not supported",
			)
		}

		b.addChecksum(bodyChecksum{hash: NewChecksum(name)}, name)
	}

	return nil
}

func newChecksumError(name string) error {
	return newErrorf(codeInvalidRequest, "Value for x-amz-checksum-%s header is invalid.", name)
}

// Read implements io.Reader.
func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.src.Read(p)
	for _, c := range b.sums {
		c.hash.Write(p[:n])
	}

	if errors.Is(err, io.EOF) {
		if wrong := b.verifyChecksums(); wrong != nil {
			return n, wrong
		}
	}

	return n, err
}

// Close implements io.Closer.
func (b *checkedBody) Close() error { return b.closer.Close() }

func (b *checkedBody) verifyChecksums() error {
	for _, name := range sortedKeys(b.sums) {
		c := b.sums[name]
		if c.want == nil {
			text, ok := b.chunks.trailers[checksumHeader+name]
			if !ok {
				return newErrorf(
					codeMalformedTrailer,
					"The request contained trailing data that was not well-formed or "+
						"did not conform to our published schema.",
				)
			}

			sum, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return newChecksumError(name)
			}

			c.want = sum
		}

		if subtle.ConstantTimeCompare(c.hash.Sum(nil), c.want) != 1 {
			if c.code != "" {
				return newErrorf(c.code, "%s", c.message)
			}

			return newErrorf(
				codeBadDigest,
				"The %s you specified did not match the calculated checksum.",
				strings.ToUpper(name),
			)
		}
	}

	return nil
}
