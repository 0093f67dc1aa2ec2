// SPDX-License-Identifier: Apache-2.0

package unmanaged_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
)

// TestOtherPrincipals: only a policy that lets EC2 alone assume the role has no others.
func TestOtherPrincipals(t *testing.T) {
	allow := func(principal string) string { return `{"Effect":"Allow","Action":"sts:AssumeRole",` + principal + `}` }
	ec2 := allow(`"Principal":{"Service":"ec2.amazonaws.com"}`)
	for statement, want := range map[string]string{
		ec2: "", "[" + ec2 + "]": "", "[]": "",
		allow(`"Principal":{"Service":["ec2.amazonaws.com","ec2.amazonaws.com.cn"]}`): "",
		allow(`"Principal":"*"`):                                                                  "*",
		allow(`"Principal":{"AWS":"*"}`):                                                          "*",
		allow(`"Principal":{"AWS":"ec2.amazonaws.com"}`):                                          "ec2.amazonaws.com",
		allow(`"Principal":{"Service":["ec2.amazonaws.com","ssm.amazonaws.com"]}`):                "ssm.amazonaws.com",
		"[" + ec2 + "," + allow(`"Principal":{"AWS":"123456789012"}`) + "]":                       "123456789012",
		allow(`"Principal":{"Federated":"arn:x","AWS":["b","a"]},"Condition":{"Bool":{"a":"b"}}`): "a arn:x b",
		allow(`"Principal":{"Service":"ec2.c2s.ic.gov"}`):                                         "",
		allow(`"NotPrincipal":{"AWS":"a"}`):                                                       "everybody but some",
		`[{"Effect":"Deny","Action":"sts:AssumeRole","Principal":"*"},` + ec2 + `]`:               "",
	} {
		got, err := unmanaged.OtherPrincipals(`{"Version":"2012-10-17","Statement":` + statement + `}`)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v, want %q", statement, got, err, want)
		}
	}

	for _, document := range []string{"", "[]", `{"Statement":[{"Effect":"Allow","Principal":{"AWS":1}}]}`} {
		if got, err := unmanaged.OtherPrincipals(document); err == nil {
			t.Errorf("%q: %q and no error", document, got)
		}
	}
}
