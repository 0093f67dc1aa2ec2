// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// What x-amz-content-sha256 may say in place of a hash.
const (
	unsignedPayload   = "UNSIGNED-PAYLOAD"
	unsignedTrailer   = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	signedChunks      = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedTrailer     = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	maxChunk          = 64 << 20
	maxChunkLine      = 4 << 10
	maxTrailers       = 16
	emptySHA256       = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	crc64NVME         = 0x9a6c9329ac4bc9b5 // reversed polynomial
	checksumHeader    = "x-amz-checksum-"
	signatureTrailer  = "x-amz-trailer-signature"
	chunkSignatureKey = "chunk-signature"
)

// NewChecksum makes the hash that a checksum's header name ends with: crc32, crc32c, crc64nvme, sha1 or sha256. It
// returns nil for an unknown one. S3 writes sums in base64.
func NewChecksum(name string) hash.Hash {
	switch strings.ToLower(name) {
	case "crc32":
		return crc32.NewIEEE()
	case "crc32c":
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case "crc64nvme":
		return crc64.New(crc64.MakeTable(crc64NVME))
	case "sha1":
		return sha1.New()
	case "sha256":
		return sha256.New()
	}

	return nil
}

// ChecksumNames are the checksums that [NewChecksum] knows.
func ChecksumNames() []string { return []string{"crc32", "crc32c", "crc64nvme", "sha1", "sha256"} }

// wrapBody replaces r's body by one that is checked while it is read: against the signed hash, the chunks'
// signatures, and the checksums in headers or trailers. The last read says what was wrong, in place of io.EOF.
func wrapBody(r *http.Request, s *Signature, payload string, key []byte) error {
	if r.Body == nil {
		r.Body = http.NoBody
	}

	checked := &checkedBody{src: r.Body, close: r.Body, sums: map[string]checksum{}}
	switch payload {
	case unsignedPayload:
	case unsignedTrailer, signedChunks, signedTrailer:
		length, err := strconv.ParseInt(r.Header.Get("X-Amz-Decoded-Content-Length"), 10, 64)
		if err != nil || length < 0 {
			return &Error{
				Code:    "MissingContentLength",
				Message: "You must provide the x-amz-decoded-content-length HTTP header.",
				Status:  http.StatusLengthRequired,
			}
		}

		chunks := &chunkReader{src: bufio.NewReader(r.Body), left: length, trailers: map[string]string{}}
		if payload != unsignedTrailer {
			chunks.signer = &chunkSigner{key: key, sig: s, previous: s.signature}
		}

		chunks.wantTrailer = payload != signedChunks
		checked.src = chunks
		checked.chunks = chunks
		r.ContentLength = length
		r.Header.Del("X-Amz-Decoded-Content-Length")
		dropChunkedEncoding(r.Header)

	default:
		sum, err := hex.DecodeString(payload)
		if err != nil || len(sum) != sha256.Size {
			return Errorf(
				"InvalidArgument",
				"x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-…, or a valid sha256 value.",
			)
		}

		checked.add(checksum{
			hash:    sha256.New(),
			want:    sum,
			code:    "XAmzContentSHA256Mismatch",
			message: "The provided 'x-amz-content-sha256' header does not match what was computed.",
		}, "content-sha256")
	}

	if err := checked.fromHeaders(r.Header); err != nil {
		return err
	}

	r.Body = checked

	return nil
}

// Unframe takes unsigned aws-chunked framing off the body of an anonymous request, whose body is checked as that of
// a signed one is. Signed chunks need a signature and are refused.
func Unframe(r *http.Request) error {
	payload := r.Header.Get("X-Amz-Content-Sha256")
	switch payload {
	case "":
		payload = unsignedPayload
	case signedChunks, signedTrailer:
		return refuse(RESTXML, missingToken)
	}

	return wrapBody(r, &Signature{}, payload, nil)
}

// dropChunkedEncoding takes aws-chunked off Content-Encoding: it is framing, not part of the object.
func dropChunkedEncoding(h http.Header) {
	var rest []string
	for part := range strings.SplitSeq(h.Get("Content-Encoding"), ",") {
		if part = strings.TrimSpace(part); part != "" && part != "aws-chunked" {
			rest = append(rest, part)
		}
	}

	h.Del("Content-Encoding")
	if len(rest) > 0 {
		h.Set("Content-Encoding", strings.Join(rest, ","))
	}
}

type checksum struct {
	hash          hash.Hash
	want          []byte
	code, message string
}

// checkedBody computes sums over a body and compares them at its end.
type checkedBody struct {
	src    io.Reader
	close  io.Closer
	chunks *chunkReader
	sums   map[string]checksum
}

func (b *checkedBody) add(c checksum, name string) { b.sums[name] = c }

func (b *checkedBody) fromHeaders(h http.Header) error {
	for _, name := range ChecksumNames() {
		text := h.Get(checksumHeader + name)
		if text == "" {
			continue
		}

		sum, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return badChecksum(name)
		}

		b.add(checksum{hash: NewChecksum(name), want: sum}, name)
	}

	for _, trailer := range h.Values("X-Amz-Trailer") {
		name, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(trailer)), checksumHeader)
		if !ok || b.chunks == nil || NewChecksum(name) == nil {
			return Errorf(
				"InvalidRequest",
				"The value specified in the x-amz-trailer header is not supported",
			)
		}

		b.add(checksum{hash: NewChecksum(name)}, name)
	}

	return nil
}

func badChecksum(name string) error {
	return Errorf("InvalidRequest", "Value for x-amz-checksum-%s header is invalid.", name)
}

// Read implements io.Reader.
func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.src.Read(p)
	for _, c := range b.sums {
		c.hash.Write(p[:n])
	}

	if errors.Is(err, io.EOF) {
		if wrong := b.finish(); wrong != nil {
			return n, wrong
		}
	}

	return n, err
}

// Close implements io.Closer.
func (b *checkedBody) Close() error { return b.close.Close() }

func (b *checkedBody) finish() error {
	for _, name := range sortedKeys(b.sums) {
		c := b.sums[name]
		if c.want == nil {
			text, ok := b.chunks.trailers[checksumHeader+name]
			if !ok {
				return Errorf(
					"MalformedTrailerError",
					"The request contained trailing data that was not well-formed or did not conform to our published schema.",
				)
			}

			sum, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return badChecksum(name)
			}

			c.want = sum
		}

		if subtle.ConstantTimeCompare(c.hash.Sum(nil), c.want) != 1 {
			if c.code != "" {
				return Errorf(c.code, "%s", c.message)
			}

			return Errorf(
				"BadDigest",
				"The %s you specified did not match the calculated checksum.",
				strings.ToUpper(name),
			)
		}
	}

	return nil
}

// Checksums are the checked sums of a request's body by name, in base64. They are known once the body has been read.
func Checksums(r *http.Request) map[string]string {
	b, ok := r.Body.(*checkedBody)
	if !ok {
		return nil
	}

	out := map[string]string{}

	for name, c := range b.sums {
		if name != "content-sha256" {
			out[name] = base64.StdEncoding.EncodeToString(c.hash.Sum(nil))
		}
	}

	return out
}

// chunkSigner checks the chain of signatures of signed chunks.
type chunkSigner struct {
	key      []byte
	sig      *Signature
	previous string
}

func (c *chunkSigner) check(kind, given, hashed string) error {
	text := kind + "\n" + c.sig.time.Format(
		timeLayout,
	) + "\n" + c.sig.scopeText() + "\n" + c.previous + "\n" + hashed
	want := hexMAC(c.key, text)
	if subtle.ConstantTimeCompare([]byte(want), []byte(given)) != 1 {
		return refuse(RESTXML, mismatch)
	}

	c.previous = want

	return nil
}

// chunkReader takes aws-chunked framing off a body.
type chunkReader struct {
	src         *bufio.Reader
	left        int64 // decoded bytes still to come
	wantTrailer bool
	signer      *chunkSigner
	trailers    map[string]string

	chunk     int64 // bytes left in this chunk
	inChunk   bool
	hash      hash.Hash // of this chunk, where chunks are signed
	signature string    // given for this chunk
	done      bool
}

// Read implements io.Reader.
func (c *chunkReader) Read(p []byte) (int, error) {
	if c.done {
		return 0, io.EOF
	}

	if !c.inChunk {
		if err := c.begin(); err != nil {
			return 0, err
		}
	}

	if c.chunk == 0 {
		return 0, c.last()
	}

	if int64(len(p)) > c.chunk {
		p = p[:c.chunk]
	}

	n, err := c.src.Read(p)
	if c.hash != nil {
		c.hash.Write(p[:n])
	}

	c.chunk -= int64(n)
	c.left -= int64(n)
	if err != nil {
		return n, shortBody(err)
	}

	if c.chunk == 0 {
		return n, c.end()
	}

	return n, nil
}

func shortBody(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Errorf("IncompleteBody", "The request body terminated unexpectedly")
	}

	return fmt.Errorf("read chunked body: %w", err)
}

// begin reads a chunk's header: its size in hex and, where chunks are signed, its signature.
func (c *chunkReader) begin() error {
	line, err := c.line()
	if err != nil {
		return err
	}

	size, extension, _ := strings.Cut(line, ";")
	n, err := strconv.ParseInt(size, 16, 64)
	if err != nil || n < 0 || n > maxChunk || n > c.left {
		return Errorf(
			"InvalidChunkSizeError",
			"the size of a chunk is not a number, or beyond what was announced",
		)
	}

	name, value, _ := strings.Cut(extension, "=")
	if c.signer != nil {
		if name != chunkSignatureKey {
			return refuse(RESTXML, mismatch)
		}

		c.signature, c.hash = value, sha256.New()
	}

	if n == 0 && c.left != 0 {
		return Errorf(
			"IncompleteBody",
			"You did not provide the number of bytes specified by the x-amz-decoded-content-length HTTP header",
		)
	}

	c.chunk = n
	c.inChunk = true

	return nil
}

// end reads what follows a chunk's data and checks its signature.
func (c *chunkReader) end() error {
	if line, err := c.line(); err != nil || line != "" {
		return Errorf("IncompleteBody", "a chunk does not end where its size says")
	}

	c.inChunk = false
	return c.checkChunk()
}

func (c *chunkReader) checkChunk() error {
	if c.signer == nil {
		return nil
	}

	return c.signer.check(
		algorithm+"-PAYLOAD",
		c.signature,
		emptySHA256+"\n"+hex.EncodeToString(c.hash.Sum(nil)),
	)
}

// last deals with the empty chunk and the trailers after it. It returns io.EOF where all is well.
func (c *chunkReader) last() error {
	if err := c.checkChunk(); err != nil {
		return err
	}

	c.done = true
	for range maxTrailers {
		line, err := c.line()
		if err != nil && !c.wantTrailer {
			return io.EOF // without trailers, some clients leave out the last line end
		}

		if err != nil {
			return err
		}

		if line == "" {
			return c.checkTrailers()
		}

		name, value, ok := strings.Cut(line, ":")
		if !ok || !c.wantTrailer {
			return Errorf(
				"MalformedTrailerError",
				"The request contained trailing data that was not well-formed.",
			)
		}

		c.trailers[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}

	return Errorf("MalformedTrailerError", "The request contained too many trailers.")
}

func (c *chunkReader) checkTrailers() error {
	given, signed := c.trailers[signatureTrailer]
	delete(c.trailers, signatureTrailer)
	if c.signer != nil && c.wantTrailer {
		if !signed {
			return refuse(RESTXML, mismatch)
		}

		h := sha256.New()
		for _, name := range sortedKeys(c.trailers) {
			fmt.Fprintf(h, "%s:%s\n", name, c.trailers[name])
		}

		if err := c.signer.check(algorithm+"-TRAILER", given, hex.EncodeToString(h.Sum(nil))); err != nil {
			return err
		}
	}

	return io.EOF
}

// line reads up to a line end, which it leaves out.
func (c *chunkReader) line() (string, error) {
	var b []byte
	for len(b) < maxChunkLine {
		ch, err := c.src.ReadByte()
		if err != nil {
			return "", shortBody(err)
		}

		if ch == '\n' {
			return strings.TrimSuffix(string(b), "\r"), nil
		}

		b = append(b, ch)
	}

	return "", Errorf("InvalidChunkSizeError", "a chunk's header is too long")
}
