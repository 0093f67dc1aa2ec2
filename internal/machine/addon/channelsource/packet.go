// SPDX-License-Identifier: Apache-2.0

package channelsource

import (
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxPackets limits the lines of an answer that are read before a pack.
const maxPackets = 10_000

// The kinds of packets: https://git-scm.com/docs/gitprotocol-common.
const (
	packetData = iota
	packetFlush
	packetOther
)

// packet is a line of git's protocol.
type packet struct {
	kind int
	text []byte
}

// packetReader reads packets.
type packetReader struct{ from io.Reader }

// next returns the next packet.
func (r *packetReader) next() (packet, error) {
	var digits [4]byte
	if _, err := io.ReadFull(r.from, digits[:]); err != nil {
		return packet{}, err
	}

	size, err := strconv.ParseUint(string(digits[:]), 16, 16)

	switch {
	case err != nil:
		return packet{}, errors.New("the server does not speak git's protocol")
	case size == 0:
		return packet{kind: packetFlush}, nil
	case size < uint64(len(digits)):
		return packet{kind: packetOther}, nil
	}

	text := make([]byte, size-uint64(len(digits)))
	_, err = io.ReadFull(r.from, text)

	return packet{text: text}, err
}

// appendPacket appends a packet to a request.
func appendPacket(to []byte, text string) []byte {
	return append(fmt.Appendf(to, "%04x", len(text)+4), text...)
}

// sideband is the pack in an answer, whose packets begin with the number of a channel.
type sideband struct {
	lines *packetReader
	left  []byte
}

// Read implements [io.Reader].
func (s *sideband) Read(p []byte) (int, error) {
	const (
		channelPack     = 1
		channelProgress = 2
	)

	for len(s.left) == 0 {
		line, err := s.lines.next()

		switch {
		case err != nil:
			return 0, err
		case line.kind == packetFlush:
			return 0, io.EOF
		case len(line.text) == 0 || line.text[0] == channelProgress:
		case line.text[0] == channelPack:
			s.left = line.text[1:]
		default:
			return 0, errors.New("the server reports an error")
		}
	}

	n := copy(p, s.left)
	s.left = s.left[n:]

	return n, nil
}
