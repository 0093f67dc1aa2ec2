// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"archive/zip"
	"bytes"
	"os"
	"testing"
)

// ScriptOfTest returns a script that starts the running test program, for [NewDeploymentPackage].
func ScriptOfTest(tb testing.TB) string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}

	return "#!/bin/sh\nexec " + self + "\n"
}

// NewDeploymentPackage returns the deployment package of a Lambda function: a zip file whose program is a script.
func NewDeploymentPackage(tb testing.TB, script string) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	header := &zip.FileHeader{Name: "bootstrap"}
	header.SetMode(0o755)
	f, err := w.CreateHeader(header)
	if err != nil {
		tb.Fatal(err)
	}

	if _, err := f.Write([]byte(script)); err != nil {
		tb.Fatal(err)
	}

	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}

	return b.Bytes()
}
