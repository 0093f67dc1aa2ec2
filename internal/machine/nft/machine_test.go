// SPDX-License-Identifier: Apache-2.0

package nft_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/nft"
)

// object returns an ELF file for x86-64 that needs libraries; a program if it has a loader.
func object(tb testing.TB, loader string, libraries ...string) []byte {
	tb.Helper()
	return objectFor(tb, elf.EM_X86_64, loader, libraries...)
}

// objectFor is object for a machine.
func objectFor(tb testing.TB, machine elf.Machine, loader string, libraries ...string) []byte {
	tb.Helper()
	names := []byte{0}
	var dynamic []elf.Dyn64
	for _, name := range libraries {
		dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(len(names))})
		names = append(append(names, name...), 0)
	}
	dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NULL)})
	interpreter := append([]byte(loader), 0)
	const header, programs, sections = 64, 56, 3 * 64
	dynamicAt := uint64(header + programs + sections)
	namesAt := dynamicAt + uint64(16*len(dynamic))
	loaderAt := namesAt + uint64(len(names))
	kind := elf.PT_NULL
	if loader != "" {
		kind = elf.PT_INTERP
	}
	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: header,
			Phoff: header, Phentsize: programs, Phnum: 1, Shoff: header + programs, Shentsize: 64, Shnum: 3, Shstrndx: 2,
		},
		elf.Prog64{Type: uint32(kind), Off: loaderAt, Filesz: uint64(len(interpreter))},
		elf.Section64{},
		elf.Section64{Type: uint32(elf.SHT_DYNAMIC), Off: dynamicAt, Size: uint64(16 * len(dynamic)), Link: 2, Entsize: 16},
		elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))},
		dynamic, names, interpreter,
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

// errKilled is what a killed agent sees.
var errKilled = errors.New("killed")

// machine is a machine with containerd, and images in a registry.
type machine struct {
	t    *testing.T
	root string
	// own is set if the machine has the program itself.
	own bool
	// version is what the program of the machine prints.
	version string
	// has is set once the machine has the image, and registry while it can be pulled.
	has, registry bool
	// tree are the files and links of the image by path. A link's text begins with "-> ".
	tree map[string]string
	// failing is a part of the command lines that fail.
	failing string
	lines   []string
	mounts  int
	// killAt is the effect at which the agent is killed, from 1 on; 0: none. after: the effect still happens.
	killAt  int
	after   bool
	effects int
	now     time.Time
	// image is the reference of the image, and stored the name that containerd knows it by.
	image, stored string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	const version = "nftables v1.0.6 (Lester Gooch #5)\n"

	return &machine{t: t, root: t.TempDir(), version: version, registry: true, image: image, stored: image, tree: map[string]string{
		"usr/sbin/nft":                              string(object(t, "/lib64/"+loader, "libnftables.so.1", "libc.so.6")),
		"lib64/" + loader:                           "-> /lib/x86_64-linux-gnu/" + loader,
		"lib/x86_64-linux-gnu/" + loader:            string(object(t, "")),
		"lib/x86_64-linux-gnu/libc.so.6":            string(object(t, "", loader)),
		"usr/lib/x86_64-linux-gnu/libmnl.so.0":      "-> ../../../usr/lib/libmnl.so.0.2",
		"usr/lib/libmnl.so.0.2":                     string(object(t, "", "libc.so.6")),
		"usr/lib/x86_64-linux-gnu/libnftables.so.1": string(object(t, "", "libmnl.so.0", "libc.so.6")),
		"usr/local/bin/kube-proxy":                  "large",
	}}
}

// program returns that of a new process of the agent.
func (m *machine) program() *nft.Program {
	return &nft.Program{
		Root: m.root,
		Dir:  copyDir,
		Find: func(name string) (string, error) {
			if m.own {
				return "/usr/sbin/" + name, nil
			}
			return "", exec.ErrNotFound
		},
		Execute: m.execute,
		Image:   func(context.Context) (string, error) { return m.image, nil },
		Pull: func(_ context.Context, ref string) error {
			return m.effect(func() error {
				m.lines = append(m.lines, "pull "+ref)
				if !m.registry {
					return errors.New("no route to the registry")
				}
				m.has = true
				return nil
			})
		},
		Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return m.now },
	}
}

// effect is something that the agent may be killed before or after.
func (m *machine) effect(do func() error) error {
	m.effects++
	if m.killAt != 0 && m.effects >= m.killAt && (!m.after || m.effects > m.killAt) {
		return errKilled
	}
	if err := do(); err != nil {
		return err
	}
	if m.killAt != 0 && m.effects >= m.killAt {
		return errKilled
	}
	return nil
}

func (m *machine) execute(_ context.Context, name string, args ...string) (string, error) {
	if args[0] == "--version" {
		return m.version, nil
	}

	line := strings.ReplaceAll(name+" "+strings.Join(args, " "), m.root, "")
	return "output", m.effect(func() error {
		m.lines = append(m.lines, line)
		if m.failing != "" && strings.Contains(line, m.failing) {
			return errors.New("ctr: something failed")
		}
		at := filepath.Join(m.root, mountDir)
		switch {
		case strings.HasPrefix(line, "ctr --namespace k8s.io images mount "):
			if !m.has || args[4] != m.stored {
				return errors.New("ctr: image \"" + image + "\": not found")
			}
			m.mounts++
			m.writeTree(at)
		case strings.HasPrefix(line, "ctr --namespace k8s.io images unmount --rm "):
			m.mounts = 0
			entries, err := os.ReadDir(at)
			for _, e := range entries {
				err = errors.Join(err, os.RemoveAll(filepath.Join(at, e.Name())))
			}
			return err
		}
		return nil
	})
}

func (m *machine) writeTree(at string) {
	m.t.Helper()
	for name, text := range m.tree {
		file := filepath.Join(at, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			m.t.Fatal(err)
		}
		target, isLink := strings.CutPrefix(text, "-> ")
		if isLink {
			if err := os.Symlink(target, file); err != nil {
				m.t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
}

// copied returns the names of the copy's files.
func (m *machine) copied() []string {
	m.t.Helper()
	var out []string
	dir := filepath.Join(m.root, copyDir)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	return out
}

const (
	unmountLine = "ctr --namespace k8s.io images unmount --rm " + mountDir
	mountLine   = "ctr --namespace k8s.io images mount " + image + " " + mountDir
	pullLine    = "pull " + image
	runCopyLine = copyDir + "/" + loader + " --library-path " + copyDir + " " + copyDir + "/nft list tables"
	runOwnLine  = "/usr/sbin/nft list tables"
)
