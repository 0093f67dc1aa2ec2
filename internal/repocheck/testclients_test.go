// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"bytes"
	"strings"
	"testing"
)

// TestClientsOfTestsHaveWorkarounds checks that AWS clients of tests come from awstest.NewConfig: a client without the
// workaround of package awsfix fails now and then with "use of closed network connection".
func TestClientsOfTestsHaveWorkarounds(t *testing.T) {
	goFiles(t, func(path string, src []byte) {
		if strings.HasPrefix(path, "internal/lib/awsfix/") || strings.HasPrefix(path, "internal/repocheck/") {
			return
		}

		if bytes.Contains(src, []byte("BaseEndpoint: ")) {
			t.Errorf("%s sets BaseEndpoint of an AWS client: use awstest.NewConfig", path)
		}

		if bytes.Contains(src, []byte("config.WithBaseEndpoint(")) && !bytes.Contains(src, []byte("awsfix.AddBodyMiddleware")) {
			t.Errorf("%s loads an AWS configuration without awsfix.AddBodyMiddleware", path)
		}
	})
}
