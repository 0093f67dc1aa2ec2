// SPDX-License-Identifier: Apache-2.0

package channelsource

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/pjbgf/sha1cd"
)

// The types of objects in a pack: https://git-scm.com/docs/gitformat-pack. Offset deltas are only
// sent to clients that ask for them, and this one does not.
const (
	typeCommit   = 1
	typeTree     = 2
	typeBlob     = 3
	typeTag      = 4
	typeRefDelta = 7
)

// The limits of a pack. Deltas are as large as what they produce at most.
const (
	maxPackObjects    = 20_000
	maxPackBytes      = 64 << 20 // of all objects, unpacked
	maxGitObjectBytes = 16 << 20
	gitHashBytes      = 20
)

// gitObject is an object of a repository.
type gitObject struct {
	kind int
	text []byte
}

// gitObjects are those of a pack by their ids.
type gitObjects map[string]gitObject

// packReader reads a pack.
type packReader struct {
	from  *bufio.Reader
	left  int64 // bytes that may still be unpacked
	found gitObjects
	// deltas are the objects that are stored as differences from another one, by the id of that
	// one.
	deltas map[string][][]byte
}

// readPack returns the objects of a pack. Each is known by the hash of its content, which is
// computed here.
func readPack(ctx context.Context, from io.Reader) (gitObjects, error) {
	p := &packReader{
		from:   bufio.NewReader(from),
		left:   maxPackBytes,
		found:  gitObjects{},
		deltas: map[string][][]byte{},
	}

	var header [12]byte
	if _, err := io.ReadFull(p.from, header[:]); err != nil {
		return nil, fmt.Errorf("read the pack: %w", err)
	}

	count := binary.BigEndian.Uint32(header[8:])

	switch {
	case string(header[:4]) != "PACK" || binary.BigEndian.Uint32(header[4:]) != 2:
		return nil, errors.New("the server sends no pack of version 2")
	case count > maxPackObjects:
		return nil, fmt.Errorf("it has %d objects, more than %d", count, maxPackObjects)
	}

	for range count {
		if err := p.readObject(ctx); err != nil {
			return nil, fmt.Errorf("read the pack: %w", err)
		}
	}

	return p.found, p.resolve(ctx)
}

// readObject reads one object.
func (p *packReader) readObject(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	kind, size, err := p.readHeader()
	if err != nil {
		return err
	}

	var base [gitHashBytes]byte
	if kind == typeRefDelta {
		if _, err := io.ReadFull(p.from, base[:]); err != nil {
			return err
		}
	}

	text, err := p.inflate(size)
	if err != nil {
		return err
	}

	switch kind {
	case typeCommit, typeTree, typeBlob, typeTag:
		_, err := p.add(gitObject{kind: kind, text: text})
		return err
	case typeRefDelta:
		id := hex.EncodeToString(base[:])
		p.deltas[id] = append(p.deltas[id], text)

		return nil
	}

	return fmt.Errorf("an object has type %d", kind)
}

// readHeader returns the type and the unpacked size of an object.
func (p *packReader) readHeader() (kind int, size int64, err error) {
	first, err := p.from.ReadByte()
	if err != nil {
		return 0, 0, err
	}

	kind = int(first >> 4 & 7)
	size = int64(first & 15)
	shift := 4

	for more := first&0x80 != 0; more; shift += 7 {
		next, err := p.from.ReadByte()
		if err != nil {
			return 0, 0, err
		}

		if shift > 32 {
			return 0, 0, errors.New("an object has a size that is not valid")
		}

		size |= int64(next&0x7f) << shift
		more = next&0x80 != 0
	}

	return kind, size, nil
}

// inflate unpacks an object of a size.
func (p *packReader) inflate(size int64) ([]byte, error) {
	if size > maxGitObjectBytes || size > p.left {
		return nil, fmt.Errorf("its objects have more than %d bytes, or one has more than %d", maxPackBytes, maxGitObjectBytes)
	}

	unpacked, err := zlib.NewReader(p.from)
	if err != nil {
		return nil, err
	}

	text := make([]byte, 0, min(size, 1<<16))
	buffer := bytes.NewBuffer(text)
	n, err := io.Copy(buffer, io.LimitReader(unpacked, size+1))
	if err != nil {
		return nil, err
	}

	if n != size {
		return nil, fmt.Errorf("an object has not the %d bytes that its header says", size)
	}

	p.left -= size

	return buffer.Bytes(), unpacked.Close()
}

// gitTypeName returns the name of a type as it is hashed.
func gitTypeName(kind int) string {
	return map[int]string{typeCommit: "commit", typeTree: "tree", typeBlob: "blob", typeTag: "tag"}[kind]
}

// add adds an object under its hash, which it returns. The hash function notices collisions:
// https://github.com/cr-marcstevens/sha1collisiondetection.
func (p *packReader) add(o gitObject) (string, error) {
	hash, ok := sha1cd.New().(sha1cd.CollisionResistantHash)
	if !ok {
		return "", errors.New("there is no SHA-1 that detects collisions")
	}

	_, _ = hash.Write([]byte(gitTypeName(o.kind) + " " + strconv.Itoa(len(o.text)) + "\x00"))
	_, _ = hash.Write(o.text)
	sum, isCollision := hash.CollisionResistantSum(nil)
	if isCollision {
		return "", errors.New("an object is made to have the same SHA-1 as another one")
	}

	id := hex.EncodeToString(sum)
	p.found[id] = o

	return id, nil
}

// resolve computes the objects that are stored as differences. The base of each is before or after
// it in the pack, and can be such an object itself. Whatever their order, each is computed once:
// when its base is known. What they may contain together is limited, see patch.
func (p *packReader) resolve(ctx context.Context) error {
	known := slices.Collect(maps.Keys(p.found))

	for len(known) > 0 {
		id := known[len(known)-1]
		known = known[:len(known)-1]
		texts := p.deltas[id]
		delete(p.deltas, id)

		for _, text := range texts {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("read the pack: %w", err)
			}

			found, err := p.applyDelta(p.found[id], text)
			if err != nil {
				return err
			}

			known = append(known, found)
		}
	}

	if len(p.deltas) > 0 {
		return errors.New("the pack has a difference from an object that it does not have")
	}

	return nil
}

// applyDelta adds the object that a difference makes of its base, and returns its id.
func (p *packReader) applyDelta(base gitObject, text []byte) (string, error) {
	made, err := p.patch(base.text, text)
	if err != nil {
		return "", err
	}

	return p.add(gitObject{kind: base.kind, text: made})
}

// errDelta is the cause of errors about differences.
var errDelta = errors.New("the pack has a difference that is not valid")

// patch returns the object that a difference makes of its base.
func (p *packReader) patch(base, text []byte) ([]byte, error) {
	in := bytes.NewReader(text)
	from, err := binary.ReadUvarint(in)
	if err != nil || from != uint64(len(base)) {
		return nil, errDelta
	}

	size, err := binary.ReadUvarint(in)
	if err != nil {
		return nil, errDelta
	}

	if size > maxGitObjectBytes || int64(size) > p.left {
		return nil, fmt.Errorf("its objects have more than %d bytes, or one has more than %d", maxPackBytes, maxGitObjectBytes)
	}

	p.left -= int64(size)
	var out []byte

	for in.Len() > 0 {
		part, err := readInstruction(in, base)
		if err != nil {
			return nil, err
		}

		out = append(out, part...)
		if uint64(len(out)) > size {
			return nil, errDelta
		}
	}

	if uint64(len(out)) != size {
		return nil, errDelta
	}

	return out, nil
}

// readInstruction returns what one instruction of a difference adds: a part of the base, or new
// bytes.
func readInstruction(in *bytes.Reader, base []byte) ([]byte, error) {
	const copyFromBase = 0x80

	op, err := in.ReadByte()
	if err != nil || op == 0 {
		return nil, errDelta
	}

	if op&copyFromBase == 0 {
		part := make([]byte, op)
		if _, err := io.ReadFull(in, part); err != nil {
			return nil, errDelta
		}

		return part, nil
	}

	var fields [7]byte // four of the offset, three of the size
	for bit := range fields {
		if op&(1<<bit) == 0 {
			continue
		}

		if fields[bit], err = in.ReadByte(); err != nil {
			return nil, errDelta
		}
	}

	offset := uint64(binary.LittleEndian.Uint32(fields[:4]))
	size := uint64(fields[4]) | uint64(fields[5])<<8 | uint64(fields[6])<<16
	if size == 0 {
		size = 0x10000
	}

	if offset+size > uint64(len(base)) {
		return nil, errDelta
	}

	return base[offset : offset+size], nil
}
