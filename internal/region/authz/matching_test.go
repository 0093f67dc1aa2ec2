// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// TestLocateStatements: the first two documents and places are of AWS: LocalStack's recording of
// test_simulate_principle_policy, and the example of simulate-principal-policy in the AWS CLI Command Reference.
func TestLocateStatements(t *testing.T) {
	t.Parallel()
	span := func(line, column, endLine, endColumn int) authz.Span {
		return authz.Span{
			Start: authz.Position{Line: line, Column: column},
			End:   authz.Position{Line: endLine, Column: endColumn},
		}
	}

	for name, c := range map[string]struct {
		document string
		want     []authz.Span
	}{
		"one statement": {
			`{"Version": "2012-10-17", "Statement": {"Sid": "", "Effect": "Allow", "Action": "s3:PutObject", "Resource": "*"}}`,
			[]authz.Span{span(1, 41, 1, 113)},
		},
		"a list": {
			"{\n    \"Version\": \"2012-10-17\",\n    \"Statement\": [\n        {\n            \"Sid\": \"1\",\n" +
				"            \"Effect\": \"Allow\",\n            \"Action\": \"codecommit:ListRepositories\",\n" +
				"            \"Resource\": \"*\"\n        }\n    ]\n}",
			[]authz.Span{span(3, 19, 9, 10)},
		},
		"two statements": {
			"{\"Statement\": [{\"Effect\": \"Allow\"},\n {\"Effect\": \"Deny\"}], \"Version\": \"2012-10-17\"}",
			[]authz.Span{span(1, 16, 1, 35), span(1, 35, 2, 20)},
		},
		"no statement": {`{"Version": "2012-10-17"}`, nil},
	} {
		got, err := authz.LocateStatements(c.document)
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}

	if _, err := authz.LocateStatements(`{"Statement": [{]}`); err == nil {
		t.Error("statements of a document that is no JSON were found")
	}
}

func FuzzLocateStatements(f *testing.F) {
	f.Add(`{"Statement": [{"Effect": "Allow"}, {}]}`)
	f.Add(`{"Statement": {}}`)
	f.Fuzz(func(_ *testing.T, document string) {
		_, _ = authz.LocateStatements(document)
	})
}
