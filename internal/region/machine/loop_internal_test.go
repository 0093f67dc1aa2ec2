// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
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
