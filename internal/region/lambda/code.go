// SPDX-License-Identifier: Apache-2.0

package lambda

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// maxUnpackedBytes is the largest size of unpacked code (Lambda developer guide, quotas).
const maxUnpackedBytes = 250 << 20

// bootstrapFile is the program in a deployment package that the runtime provided.al2023 starts.
const bootstrapFile = "bootstrap"

// codeSource is where the code of a function comes from.
type codeSource struct{ bucket, key, version *string }

// functionCode is code that was unpacked.
type functionCode struct {
	sha256 string // in base64
	size   int64  // of the zip file
	dir    string // below Config.Dir
}

func (f *function) setCode(c functionCode) {
	f.CodeSHA256 = c.sha256
	f.CodeSize = c.size
	f.CodeDir = c.dir
}

// fetchCode reads a zip file from S3 with the rights of the caller, and unpacks it. As in Lambda, the code is copied: a
// later change of the object does not matter.
func (s *Service) fetchCode(ctx context.Context, name string, from codeSource) (functionCode, error) {
	if from.bucket == nil || from.key == nil {
		return functionCode{}, invalidParameter(
			"Please provide a source for function code: this region takes S3Bucket and S3Key.",
		)
	}

	body, err := s.cfg.Objects.ReadObject(ctx, *from.bucket, *from.key, sdkshape.String(from.version))
	if err != nil {
		if e, ok := errors.AsType[*wire.Error](err); ok {
			return functionCode{}, invalidParameter(
				"Error occurred while GetObject. S3 Error Code: %s. S3 Error Message: %s",
				e.Code,
				e.Message,
			)
		}

		return functionCode{}, err
	}

	sum := sha256.Sum256(body)
	code := functionCode{
		sha256: base64.StdEncoding.EncodeToString(sum[:]),
		size:   int64(len(body)),
		dir:    filepath.Join(name, hex.EncodeToString(sum[:])),
	}

	return code, unpack(body, filepath.Join(s.cfg.Dir, code.dir))
}

// newZipError returns Lambda's error for a zip file that it cannot use.
func newZipError(reason string) error {
	return newErrorf(codeInvalidParameterValue, "Could not unzip uploaded file. %s", reason)
}

// unpack unpacks a zip file to a new folder. It does nothing if the folder exists: its name has the hash of the file.
func unpack(body []byte, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}

	archive, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		return newZipError("Please check your file, then try to upload again.")
	}

	work := dir + ".new"
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("unpack the code of a function: %w", err)
	}

	var total uint64

	for _, file := range archive.File {
		total += file.UncompressedSize64
		if total > maxUnpackedBytes {
			return invalidParameter("Unzipped size must be smaller than %d bytes", maxUnpackedBytes)
		}

		if err := unpackFile(file, work); err != nil {
			return err
		}
	}

	if err := os.MkdirAll(work, 0o755); err != nil { // an empty archive
		return fmt.Errorf("unpack the code of a function: %w", err)
	}

	if err := os.Rename(work, dir); err != nil {
		return fmt.Errorf("unpack the code of a function: %w", err)
	}

	return nil
}

// unpackFile writes one file of an archive below dir.
func unpackFile(file *zip.File, dir string) error {
	if !filepath.IsLocal(file.Name) {
		return newZipError("A path in it is not relative: " + file.Name)
	}

	path := filepath.Join(dir, filepath.FromSlash(file.Name))
	if file.FileInfo().IsDir() {
		return os.MkdirAll(path, 0o755)
	}

	if !file.Mode().IsRegular() {
		return newZipError("It has something that is no file: " + file.Name)
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("unpack %s: %w", file.Name, err)
	}

	from, err := file.Open()
	if err != nil {
		return newZipError("Its file " + file.Name + " cannot be read.")
	}

	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, file.Mode().Perm())
	if err != nil {
		return errors.Join(fmt.Errorf("unpack %s: %w", file.Name, err), from.Close())
	}

	_, err = io.Copy(to, io.LimitReader(from, maxUnpackedBytes))

	return errors.Join(err, to.Close(), from.Close())
}
