// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestBoundaryOfAnOlderSlipway: the boundary of an older store allows more than this version needs, and has what an
// administrator added. 'slipway iam boundary' tells, an administrator applies what it prints, and the added statement stays. No
// attack: what an administrator does with an older boundary.
func TestBoundaryOfAnOlderSlipway(t *testing.T) {
	l := newLab(t)
	api := iam.NewFromConfig(l.config(caller{}))
	arn := "arn:aws:iam::" + regiontest.AccountID + ":policy/slipway/slipway-machines-" + bucket
	type document struct {
		Version   string
		Statement []map[string]any
	}
	type boundary struct {
		ARN, State      string
		Outdated, Added []string
		Characters      int
		Document        document
	}
	read := func(code int, args ...string) boundary {
		var out boundary
		printed := l.must(caller{}, code, append([]string{"iam", "boundary", "-o", "json"}, args...)...)
		l.check(json.Unmarshal([]byte(printed), &out))

		return out
	}
	apply := func(d document) {
		text, err := json.Marshal(d)
		l.check(err)
		_, err = api.CreatePolicyVersion(t.Context(), &iam.CreatePolicyVersionInput{
			PolicyArn:      &arn,
			PolicyDocument: sdk.String(string(text)),
			SetAsDefault:   true,
		})
		l.check(err)
	}

	if got := read(0); got.State != "current" || got.ARN != arn || len(got.Outdated)+len(got.Added) > 0 {
		t.Fatalf("a new store: %+v", got)
	}

	own := read(0).Document
	text, err := os.ReadFile("../../internal/cluster/permissions/testdata/boundary-without-cluster-tag.json")
	l.check(err)
	var older document // as an older slipway has created it
	l.check(json.Unmarshal(text, &older))

	for _, s := range older.Statement {
		if s["Sid"] == "Store" {
			s["Action"] = "s3:*"
			s["Resource"] = append(s["Resource"].([]any), "arn:aws:s3:::"+bucket+"/other/${aws:PrincipalTag/slipway.dev/cluster}/machine/*")
		}
	}

	queue := map[string]any{"Sid": "Queue", "Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}
	lists := map[string]any{"Sid": "List", "Effect": "Allow", "Action": "sqs:ListQueues", "Resource": "*"}
	older.Statement = slices.DeleteFunc(older.Statement, func(s map[string]any) bool { return s["Sid"] == "List" })
	older.Statement = append(older.Statement, queue, lists)
	apply(older)

	got := read(2)
	if got.State != "outdated" || !slices.Contains(got.Outdated, "Store") || !slices.Contains(got.Outdated, "Records") ||
		!slices.Equal(got.Added, []string{"Queue", "List"}) {
		t.Fatalf("an older boundary: %+v", got)
	}

	if table := l.must(caller{}, 2, "iam", "boundary"); !strings.Contains(table, "outdated") || !strings.Contains(table, "Store, Audit") {
		t.Errorf("the table says\n%s", table)
	}

	apply(got.Document)
	after := read(0)
	text, err = json.Marshal(after.Document)
	l.check(err)
	for _, kept := range []string{"sqs:SendMessage", "sqs:ListQueues", "/other/"} {
		if !strings.Contains(string(text), kept) {
			t.Errorf("after the update, %s is gone: %s", kept, text)
		}
	}

	for _, former := range []string{`"s3:*"`, "/team/*/machine/", `"Sessions"`, `"Signal"`} {
		if strings.Contains(string(text), former) {
			t.Errorf("after the update, the boundary has %s: %s", former, text)
		}
	}

	if after.State != "current" {
		t.Errorf("after the update: %+v", after)
	}

	if got := read(0, "--account", "123456789012"); got.State != "not read" || len(got.Document.Statement) != len(own.Statement) {
		t.Errorf("of another account: %+v", got)
	}

	l.createCluster()
	l.must(caller{}, 0, "iam", "boundary", "demo")
	if out, errs, code := l.slipway(l.user("reader", nil), "iam", "boundary"); code != 1 || !strings.Contains(errs, "administrator") {
		t.Errorf("without permission: exit %d\n%s%s", code, out, errs)
	}
}

// TestPoliciesOfEditedManifests: whoever can write to the bucket changes a manifest before an administrator prints the policies
// of its operators, which depend on it. Seen to succeed while an error of the manifests meant that there are none.
func TestPoliciesOfEditedManifests(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	l.writer().edit("instancegroups/workers.yaml", "maxSize: 2", "maxSize: 3")
	for _, args := range [][]string{{"iam", "operator-policy", "demo"}, {"iam", "boundary", "demo"}} {
		l.refused("an edited group", caller{}, args, "demo/instancegroups/workers.yaml", unsigned)
	}

	l.must(caller{}, 0, "iam", "operator-policy", "other") // it need not exist
}
