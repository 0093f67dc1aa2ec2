// SPDX-License-Identifier: Apache-2.0

// Package state keeps what a region's service knows in one JSON file, so that it survives a restart of the region's
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

// LoadFile reads the JSON file at path into v. A file that is not there leaves v as it is.
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

// SaveFile writes v as JSON to path, which only its owner may read, and makes its folder. A reader, or a region killed in
// the middle, sees the old file or the new one. The file is not forced to disk: it outlives the process, not the machine.
func SaveFile(path string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("write the region's state to %s: %w", path, err)
	}

	return WriteFileAtomically(path, append(b, '\n'))
}

// WriteFileAtomically writes b to path as [SaveFile] does.
func WriteFileAtomically(path string, b []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write the region's state: %w", err)
	}

	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // CreateTemp makes it 0600
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

// Dir is a folder with one file for each service. It is what services take as their way to keep state.
type Dir string

// Load reads what was saved under name into v, and leaves v as it is where nothing was.
func (d Dir) Load(name string, v any) error {
	return LoadFile(filepath.Join(string(d), name+".json"), v)
}

// Save writes v under name, as [SaveFile] does.
func (d Dir) Save(name string, v any) error {
	return SaveFile(filepath.Join(string(d), name+".json"), v)
}
