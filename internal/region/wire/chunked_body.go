// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
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

// The values of x-amz-content-sha256 other than a hash.
const (
	unsignedPayload = "UNSIGNED-PAYLOAD"
	unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	signedChunks    = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedTrailer   = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
)

const (
	maxChunkBytes     = 64 << 20
	maxChunkLineBytes = 4 << 10
	maxTrailers       = 16
	emptySHA256       = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	crc64NVME         = 0x9a6c9329ac4bc9b5 // reversed polynomial
	checksumHeader    = "x-amz-checksum-"
	signatureTrailer  = "x-amz-trailer-signature"
	chunkSignatureKey = "chunk-signature"
)

// NewChecksum returns a new hash for the last part of the name of a checksum header: crc32, crc32c,
// crc64nvme, sha1 or sha256. It returns nil for another name. S3 encodes the sums in base64.
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

// ChecksumNames returns the names that [NewChecksum] supports.
func ChecksumNames() []string { return []string{"crc32", "crc32c", "crc64nvme", "sha1", "sha256"} }

// replaceBody replaces r's body by one that is verified while it is read: against the signed hash, the
// signatures of its chunks, and the checksums in headers or trailers. If the verification fails, the last
// read returns the error instead of io.EOF.
func replaceBody(r *http.Request, s *Signature, payload string, key []byte) error {
	if r.Body == nil {
		r.Body = http.NoBody
	}

	checked := &checkedBody{src: r.Body, closer: r.Body, sums: map[string]bodyChecksum{}}
	switch payload {
	case unsignedPayload:
	case unsignedTrailer, signedChunks, signedTrailer:
		length, err := strconv.ParseInt(r.Header.Get("X-Amz-Decoded-Content-Length"), 10, 64)
		if err != nil || length < 0 {
			return newStatusError(
				codeMissingContentLength,
				http.StatusLengthRequired,
				"You must provide the x-amz-decoded-content-length HTTP header.",
			)
		}

		chunks := &chunkReader{src: bufio.NewReader(r.Body), remaining: length, trailers: map[string]string{}}
		if payload != unsignedTrailer {
			chunks.verifier = &chunkVerifier{key: key, sig: s, previous: s.signature}
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
			return newErrorf(
				codeInvalidArgument,
				"x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-…, or a valid sha256 value.",
			)
		}

		checked.addChecksum(bodyChecksum{
			hash:    sha256.New(),
			want:    sum,
			code:    codeContentSHA256Mismatch,
			message: "The provided 'x-amz-content-sha256' header does not match what was computed.",
		}, "content-sha256")
	}

	if err := checked.addHeaderChecksums(r.Header, !describesObject(r)); err != nil {
		return err
	}

	r.Body = checked

	return nil
}

// DecodeAnonymousBody prepares the body of a request without a signature: it removes unsigned aws-chunked
// framing and verifies checksums, as [Verifier.Verify] does for a signed request. It rejects signed chunks,
// which need a signature.
func DecodeAnonymousBody(r *http.Request) error {
	payload := r.Header.Get("X-Amz-Content-Sha256")
	switch payload {
	case "":
		payload = unsignedPayload
	case signedChunks, signedTrailer:
		return newSignatureError(S3Protocol, missingToken)
	}

	return replaceBody(r, &Signature{}, payload, nil)
}

// dropChunkedEncoding removes aws-chunked from Content-Encoding, because it is not part of the object.
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

// chunkVerifier verifies the signatures of chunks. Each one contains the signature before it.
type chunkVerifier struct {
	key      []byte // signing key
	sig      *Signature
	previous string // signature of the request, and then of the chunk before
}

// verifySignature verifies the signature of a chunk or a trailer. kind is the algorithm, and hashed the hash
// of the content.
func (c *chunkVerifier) verifySignature(kind, given, hashed string) error {
	text := strings.Join([]string{
		kind,
		c.sig.signedAt.Format(timeLayout),
		c.sig.scopeText(),
		c.previous,
		hashed,
	}, "\n")
	want := hexHMAC(c.key, text)
	if subtle.ConstantTimeCompare([]byte(want), []byte(given)) != 1 {
		return newSignatureError(S3Protocol, signatureMismatch)
	}

	c.previous = want

	return nil
}

// chunkReader removes aws-chunked framing from a body.
type chunkReader struct {
	src         *bufio.Reader
	remaining   int64 // decoded bytes still to come
	wantTrailer bool
	verifier    *chunkVerifier
	trailers    map[string]string

	chunkRemaining int64 // bytes left in this chunk
	inChunk        bool
	hash           hash.Hash // of this chunk, where chunks are signed
	signature      string    // given for this chunk
	done           bool
}

// Read implements io.Reader.
func (c *chunkReader) Read(p []byte) (int, error) {
	if c.done {
		return 0, io.EOF
	}

	if !c.inChunk {
		if err := c.readChunkHeader(); err != nil {
			return 0, err
		}
	}

	if c.chunkRemaining == 0 {
		return 0, c.readTrailers()
	}

	if int64(len(p)) > c.chunkRemaining {
		p = p[:c.chunkRemaining]
	}

	n, err := c.src.Read(p)
	if c.hash != nil {
		c.hash.Write(p[:n])
	}

	c.chunkRemaining -= int64(n)
	c.remaining -= int64(n)
	if err != nil {
		return n, toBodyError(err)
	}

	if c.chunkRemaining == 0 {
		return n, c.finishChunk()
	}

	return n, nil
}

func toBodyError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return newErrorf(codeIncompleteBody, "The request body terminated unexpectedly")
	}

	return fmt.Errorf("read chunked body: %w", err)
}

// readChunkHeader reads the header of a chunk: its size in hexadecimal and, if chunks are signed, its
// signature.
func (c *chunkReader) readChunkHeader() error {
	line, err := c.readLine()
	if err != nil {
		return err
	}

	size, extension, _ := strings.Cut(line, ";")
	n, err := strconv.ParseInt(size, 16, 64)
	if err != nil || n < 0 || n > maxChunkBytes || n > c.remaining {
		return newErrorf(
			codeInvalidChunkSize,
			"the size of a chunk is not a number, or larger than the announced size",
		)
	}

	name, value, _ := strings.Cut(extension, "=")
	if c.verifier != nil {
		if name != chunkSignatureKey {
			return newSignatureError(S3Protocol, signatureMismatch)
		}

		c.signature = value
		c.hash = sha256.New()
	}

	if n == 0 && c.remaining != 0 {
		return newErrorf(
			codeIncompleteBody,
			"You did not provide the number of bytes specified by the x-amz-decoded-content-length HTTP header",
		)
	}

	c.chunkRemaining = n
	c.inChunk = true

	return nil
}

// finishChunk reads the line end after the data of a chunk and verifies its signature.
func (c *chunkReader) finishChunk() error {
	if line, err := c.readLine(); err != nil || line != "" {
		return newErrorf(codeIncompleteBody, "a chunk does not end after the size in its header")
	}

	c.inChunk = false
	return c.verifyChunk()
}

func (c *chunkReader) verifyChunk() error {
	if c.verifier == nil {
		return nil
	}

	return c.verifier.verifySignature(
		signingAlgorithm+"-PAYLOAD",
		c.signature,
		emptySHA256+"\n"+hex.EncodeToString(c.hash.Sum(nil)),
	)
}

// readTrailers verifies the empty chunk and reads the trailers after it. It returns io.EOF for success.
func (c *chunkReader) readTrailers() error {
	if err := c.verifyChunk(); err != nil {
		return err
	}

	c.done = true
	for range maxTrailers {
		line, err := c.readLine()
		if err != nil && !c.wantTrailer {
			return io.EOF // without trailers, some clients omit the last line end
		}

		if err != nil {
			return err
		}

		if line == "" {
			return c.verifyTrailers()
		}

		name, value, ok := strings.Cut(line, ":")
		if !ok || !c.wantTrailer {
			return newErrorf(
				codeMalformedTrailer,
				"The request contained trailing data that was not well-formed.",
			)
		}

		c.trailers[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}

	return newErrorf(codeMalformedTrailer, "The request contained too many trailers.")
}

func (c *chunkReader) verifyTrailers() error {
	given, signed := c.trailers[signatureTrailer]
	delete(c.trailers, signatureTrailer)
	if c.verifier != nil && c.wantTrailer {
		if !signed {
			return newSignatureError(S3Protocol, signatureMismatch)
		}

		h := sha256.New()
		for _, name := range sortedKeys(c.trailers) {
			fmt.Fprintf(h, "%s:%s\n", name, c.trailers[name])
		}

		hashed := hex.EncodeToString(h.Sum(nil))
		if err := c.verifier.verifySignature(signingAlgorithm+"-TRAILER", given, hashed); err != nil {
			return err
		}
	}

	return io.EOF
}

// readLine reads a line and returns it without the line end.
func (c *chunkReader) readLine() (string, error) {
	var b []byte
	for len(b) < maxChunkLineBytes {
		ch, err := c.src.ReadByte()
		if err != nil {
			return "", toBodyError(err)
		}

		if ch == '\n' {
			return strings.TrimSuffix(string(b), "\r"), nil
		}

		b = append(b, ch)
	}

	return "", newErrorf(codeInvalidChunkSize, "a chunk's header is too long")
}
