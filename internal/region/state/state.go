// SPDX-License-Identifier: Apache-2.0

// Package state keeps the state of a region's services: [Store] is a service's state under one lock, saved
// after each change; [Dir] saves it as one JSON file a service, so that it survives a restart of the region's
// process. It knows no service.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// LoadFile reads the JSON file at path into v. It leaves v unchanged if the file does not exist.
func LoadFile(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("read the region's state: %w", err)
	}

	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read the region's state in %s: %w", path, err)
	}

	return nil
}

// SaveFile writes v as JSON to path with mode 0600, and creates the folder. The write is atomic: a reader, or
// a region that is killed in the middle, sees the old file or the new one. It does not call fsync: the file
// survives the end of the process, not a crash of the computer.
func SaveFile(path string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("write the region's state to %s: %w", path, err)
	}

	return WriteFileAtomically(path, append(b, '\n'))
}

// WriteFileAtomically writes b to path, with the guarantees of [SaveFile].
func WriteFileAtomically(path string, b []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write the region's state: %w", err)
	}

	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // CreateTemp sets mode 0600
	if err != nil {
		return fmt.Errorf("write the region's state: %w", err)
	}

	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}

	if err != nil {
		return fmt.Errorf("write the region's state to %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}

	return nil
}

// Dir is a folder with one JSON file a service, <name>.json. It implements [Backend].
type Dir string

// Load reads what was saved under name into v. It leaves v unchanged if nothing was saved.
func (d Dir) Load(name string, v any) error {
	return LoadFile(filepath.Join(string(d), name+".json"), v)
}

// Save writes v under name, with the guarantees of [SaveFile].
func (d Dir) Save(name string, v any) error {
	return SaveFile(filepath.Join(string(d), name+".json"), v)
}
