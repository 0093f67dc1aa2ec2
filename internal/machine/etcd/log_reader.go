// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
)

// frameLength is the size of the length before a record, and to which records are padded.
const frameLength = 8

// logChunk is how many bytes of a log are read at a time. etcd allocates a file of 64 MiB before it writes to it, so most of a file is
// zeros, which need not be in memory.
const logChunk = 256 << 10

// logReader reads the records of a file of etcd's write-ahead log.
type logReader struct {
	file fs.File
	in   *bufio.Reader
	// length of the file and size of the records that were read, in bytes.
	length int64
	size   int
}

func openLog(dir fs.FS, name string) (*logReader, error) {
	file, err := dir.Open(name)
	if err != nil {
		return nil, err
	}

	info, err := file.Stat()
	if err != nil {
		_ = file.Close()

		return nil, err
	}

	return &logReader{file: file, in: bufio.NewReaderSize(file, logChunk), length: info.Size()}, nil
}

func (r *logReader) close() { _ = r.file.Close() }

// next returns the next record, or [io.EOF] if no complete one follows. A record has its length in the lower 56 bits of 8 bytes before it.
// If the highest bit is set, the three lowest ones of the last byte are the length of the padding after it. A file that is not full
// ends with zeros.
func (r *logReader) next() ([]byte, error) {
	head, err := r.in.Peek(frameLength)
	if err != nil {
		return nil, err
	}

	field := binary.LittleEndian.Uint64(head)
	length := field & (1<<56 - 1)
	padding := uint64(0)
	if field>>63 == 1 {
		padding = field >> 56 & 7
	}

	size := frameLength + length + padding
	if length == 0 || size > uint64(r.length-int64(r.size)) {
		return nil, io.EOF
	}

	frame := make([]byte, size)
	if _, err := io.ReadFull(r.in, frame); err != nil {
		return nil, err
	}

	r.size += len(frame)

	return frame[frameLength:][:length], nil
}

// hasMore reports whether anything but zeros follows.
func (r *logReader) hasMore() (bool, error) {
	chunk := make([]byte, logChunk)
	zeros := make([]byte, logChunk)
	for {
		n, err := r.in.Read(chunk)
		switch {
		case !bytes.Equal(chunk[:n], zeros[:n]):
			return true, nil
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		}
	}
}
