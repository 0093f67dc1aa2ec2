// SPDX-License-Identifier: Apache-2.0

package channelsource

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"strconv"
	"testing"
)

// packOf returns a pack of a chain of objects: a file, and differences, each of which replaces the text of the one before by the
// next number. The last difference is first in the pack, as a server can send it.
func packOf(tb testing.TB, differences int) []byte {
	tb.Helper()
	var pack bytes.Buffer
	pack.WriteString("PACK\x00\x00\x00\x02")
	_ = binary.Write(&pack, binary.BigEndian, uint32(differences+1))
	number := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
	add := func(kind byte, base, text []byte) {
		pack.WriteByte(kind<<4 | byte(len(text)))
		pack.Write(base)
		w := zlib.NewWriter(&pack)
		_, err := w.Write(text)
		if err := errors.Join(err, w.Close()); err != nil {
			tb.Fatal(err)
		}
	}

	for i := differences; i > 0; i-- {
		base := sha1.Sum(append([]byte("blob "+strconv.Itoa(4)+"\x00"), number(i-1)...))
		add(typeRefDelta, base[:], append([]byte{4, 4, 4}, number(i)...))
	}

	add(typeBlob, nil, number(0))

	return pack.Bytes()
}

// stepCounter is a context that counts how often it is asked, and ends after a number of times.
type stepCounter struct {
	context.Context
	steps, last int
}

// Err counts a step.
func (c *stepCounter) Err() error {
	c.steps++
	if c.last > 0 && c.steps > c.last {
		return context.Canceled
	}

	return c.Context.Err()
}

// TestDifferencesInAnUnfortunateOrder: a pack whose differences come in the reverse of the order in which they can be resolved. Seen to
// take the square of their number: 200 million steps, 45 seconds.
func TestDifferencesInAnUnfortunateOrder(t *testing.T) {
	differences := maxPackObjects - 1
	if testing.Short() {
		differences /= 10
	}

	pack := packOf(t, differences)
	ctx := &stepCounter{Context: t.Context()}
	objects, err := readPack(ctx, bytes.NewReader(pack))
	if err != nil || len(objects) != differences+1 {
		t.Fatalf("%d objects: %v", len(objects), err)
	}

	if ctx.steps < differences || ctx.steps > 3*differences {
		t.Errorf("%d steps for %d differences", ctx.steps, differences)
	}
}

// TestLongPackEndsWithItsContext: an agent that stops, or whose time for a channel is over, computes no further.
func TestLongPackEndsWithItsContext(t *testing.T) {
	pack := packOf(t, 100)
	for _, last := range []int{50, 150} { // while it is read, and while it is resolved
		ctx := &stepCounter{Context: t.Context(), last: last}
		if _, err := readPack(ctx, bytes.NewReader(pack)); !errors.Is(err, context.Canceled) || ctx.steps != last+1 {
			t.Errorf("%d steps: %v", ctx.steps, err)
		}
	}
}

// TestDifferencesWithoutBase: those whose base is missing, also of another difference, are refused.
func TestDifferencesWithoutBase(t *testing.T) {
	pack := packOf(t, 3)
	file := bytes.LastIndex(pack, []byte{typeBlob<<4 | 4})
	pack[11] = 3
	if _, err := readPack(t.Context(), bytes.NewReader(pack[:file])); err == nil {
		t.Error("a pack without the file is read")
	}
}

// BenchmarkDifferencesInAnUnfortunateOrder measures what a server can make an agent compute with differences.
func BenchmarkDifferencesInAnUnfortunateOrder(b *testing.B) {
	pack := packOf(b, maxPackObjects-1)
	for b.Loop() {
		if _, err := readPack(b.Context(), bytes.NewReader(pack)); err != nil {
			b.Fatal(err)
		}
	}
}
