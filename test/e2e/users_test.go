// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// userARN returns the ARN of an IAM user of the region's account.
func (e *environment) userARN(name string) string {
	e.t.Helper()
	who, err := sts.NewFromConfig(e.aws).GetCallerIdentity(e.t.Context(), &sts.GetCallerIdentityInput{})
	if err != nil {
		e.t.Fatal(err)
	}
	return "arn:aws:iam::" + aws.ToString(who.Account) + ":user/" + name
}

// withUser adds a user with the rights of an administrator to the API of a manifest.
func (e *environment) withUser(text, name string) string {
	return strings.Replace(text, "\n  api:\n", "\n  api:\n    users:\n    - {arn: \""+e.userARN(name)+"\", groups: [\"slipway:cluster-admins\"]}\n", 1)
}

// checkUsers uses the API as IAM users, whose kubeconfig runs 'slipway token': alice is named in the manifest, eve is
// not. Neither has any permission in AWS.
func (e *environment) checkUsers() {
	e.t.Helper()
	config := filepath.Join(e.t.TempDir(), "kubeconfig")
	// Machines call STS at the region's address in the VPC, which the signature names.
	e.runSlipway("export", "kubeconfig", clusterName, "--exec", "--sts-endpoint", "http://198.18.0.1", "--kubeconfig", config)
	if text, err := os.ReadFile(config); err != nil || strings.Contains(string(text), "client-key-data") {
		e.t.Errorf("the kubeconfig has a key (%v):\n%s", err, text)
	}

	own := maps.Clone(e.env)
	defer func() { e.env = own }()
	api := iam.NewFromConfig(e.aws)
	for name, want := range map[string]int{"alice": 0, "eve": 1} {
		if _, err := api.CreateUser(e.t.Context(), &iam.CreateUserInput{UserName: &name}); err != nil {
			e.t.Fatal(err)
		}
		key, err := api.CreateAccessKey(e.t.Context(), &iam.CreateAccessKeyInput{UserName: &name})
		if err != nil {
			e.t.Fatal(err)
		}
		e.env = maps.Clone(own)
		e.env["AWS_ACCESS_KEY_ID"], e.env["AWS_SECRET_ACCESS_KEY"] = *key.AccessKey.AccessKeyId, *key.AccessKey.SecretAccessKey
		e.env["PATH"] = filepath.Dir(e.slipway) + ":" + os.Getenv("PATH")
		start := time.Now()
		r := e.runProgram(kubectlPath(filepath.Dir(e.cache)), "--kubeconfig", config, "auth", "whoami", "-o", "jsonpath={.status.userInfo}")
		if (r.code == 0) != (want == 0) || want == 0 && !strings.Contains(r.out, e.userARN(name)) {
			e.t.Errorf("%s: %d %s%s", name, r.code, r.out, r.err)
		}
		e.t.Logf("%s was answered after %s", name, time.Since(start).Round(time.Millisecond))
	}
}
