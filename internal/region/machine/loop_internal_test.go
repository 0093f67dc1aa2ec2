// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A broken loop device fails reads and writes, and its file can get another device with the same content.
func TestBreakLoopDevice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: loop devices need root")
	}
	file := filepath.Join(t.TempDir(), "vol.img")
	content := bytes.Repeat([]byte("slipway "), 1<<17)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := ensureLoopDevice(file)
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(first, os.O_RDWR|unix.O_EXCL|unix.O_DIRECT, 0) // as a mount holds it
	if err != nil {
		t.Fatal(err)
	}
	if err := breakLoopDevice(first); err != nil {
		t.Fatal(err)
	}
	block, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
	if err != nil {
		t.Fatal(err)
	}
	if n, err := held.WriteAt(block, 0); err == nil {
		t.Errorf("wrote %d bytes to a broken device", n)
	}
	if n, _ := held.ReadAt(block, 0); n != 0 {
		t.Errorf("read %d bytes from a broken device", n)
	}
	if again, err := findLoopDevice(file); again != "" || err != nil {
		t.Errorf("a broken device was found again: %s, %v", again, err)
	}

	second, err := ensureLoopDevice(file)
	if err != nil || second == first {
		t.Fatalf("another device for the file: %s, %v", second, err)
	}
	got, err := os.ReadFile(second)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("the content changed: %d bytes, %v", len(got), err)
	}
	if err := errors.Join(freeLoopDevice(second), freeLoopDevice(first), held.Close()); err != nil {
		t.Error(err)
	}
	if left, err := findLoopDevice(file); left != "" || err != nil {
		t.Errorf("a device is left: %s, %v", left, err)
	}
}

// Writes that the device has acknowledged are in the file, also those at the moment at which it is broken: EBS loses none when
// a volume is detached by force, and etcd relies on it.
func TestBrokenLoopDeviceKeepsAcknowledgedWrites(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: loop devices need root")
	}

	for range 10 { // each of ten lost a write while the offset was changed
		breakWhileWriting(t)
	}
}

// breakWhileWriting numbers the blocks of a device until it is broken, and compares the file with what was acknowledged.
func breakWhileWriting(t *testing.T) {
	t.Helper()
	const blockSize, blocks = 4096, 1024
	file := filepath.Join(t.TempDir(), "vol.img")
	if err := os.WriteFile(file, make([]byte, blockSize*blocks), 0o600); err != nil {
		t.Fatal(err)
	}
	device, err := ensureLoopDevice(file)
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL|unix.O_DIRECT, 0) // as a mount holds it
	if err != nil {
		t.Fatal(err)
	}
	block, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
	if err != nil {
		t.Fatal(err)
	}

	acknowledged, begun := make(chan uint32, 1), make(chan struct{})
	go func() {
		number := uint32(1)
		for ; ; number++ {
			binary.LittleEndian.PutUint32(block, number)
			if _, err := held.WriteAt(block, int64(number%blocks)*blockSize); err != nil {
				break
			}
			if number == blocks/8 {
				close(begun)
			}
		}
		acknowledged <- number - 1
	}()
	<-begun
	if err := breakLoopDevice(device); err != nil {
		t.Error(err)
	}
	last := <-acknowledged

	content, err := os.ReadFile(file)
	if err != nil || len(content) != blockSize*blocks {
		t.Errorf("the file has %d bytes, %v; it had %d", len(content), err, blockSize*blocks)
	}
	for number := last; number > 0 && last-number < blocks/2; number-- {
		if got := binary.LittleEndian.Uint32(content[number%blocks*blockSize:]); got != number {
			t.Errorf("write %d of %d was acknowledged, and the file has %d in its place", number, last, got)
		}
	}
	if err := errors.Join(freeLoopDevice(device), held.Close(), unix.Munmap(block)); err != nil {
		t.Error(err)
	}
}
