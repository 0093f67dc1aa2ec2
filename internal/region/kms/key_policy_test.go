// SPDX-License-Identifier: Apache-2.0

package kms_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	v1iam "github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	regionkms "github.com/slipway-k8s/slipway/internal/region/kms"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// world is a KMS and an IAM with one role, and clients for the root and for the role.
type world struct {
	root, role *kms.Client
	iam        *iam.IAM
	service    *regionkms.Service
	caller     wire.Caller // of the role
}

const roleARN = "arn:aws:iam::000000000000:role/r"

func newWorld(t *testing.T) world {
	t.Helper()
	id, err := iam.New(iam.Config{Account: "000000000000", AccessKeyID: "AKIAROOT", SecretKey: "s", State: state.Dir(t.TempDir()), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	svc, err := regionkms.New(regionkms.Config{Region: "us-east-1", Account: "000000000000", State: state.Dir(t.TempDir()), Now: time.Now, Identities: id})
	if err != nil {
		t.Fatal(err)
	}
	w := world{iam: id, service: svc}
	w.do(t, "CreateRole", &v1iam.CreateRoleInput{RoleName: new("r"), AssumeRolePolicyDocument: new(
		`{"Statement":{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}}`)})
	c, err := id.IssueRoleCredentials("r", "i-1")
	if err != nil {
		t.Fatal(err)
	}
	k, _ := id.FindKey(c.AccessKeyID)
	w.caller = k.Caller
	w.caller.AccessKeyID = c.AccessKeyID
	client := func(caller wire.Caller) *kms.Client {
		endpoint := wire.NewEndpoint(svc.Wire())
		srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			endpoint.Serve(rw, r.WithContext(wire.WithAuthorizer(wire.WithCaller(r.Context(), caller), id)), "id", nil)
		}))
		t.Cleanup(srv.Close)
		return kms.NewFromConfig(awstest.NewConfig(srv.URL, "us-east-1", credentials.NewStaticCredentialsProvider("AKIAEXAMPLE", "secret", "")))
	}
	w.root, w.role = client(wire.Caller{Root: true, Account: "000000000000"}), client(w.caller)
	return w
}

// do calls an operation of IAM as the region itself.
func (w world) do(t *testing.T, op string, in any) {
	t.Helper()
	for _, o := range w.iam.Service().Operations {
		if o.Name == op {
			if _, err := o.Handle(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (w world) policy(t *testing.T, statement string) {
	t.Helper()
	w.do(t, "PutRolePolicy", &v1iam.PutRolePolicyInput{RoleName: new("r"), PolicyName: new("p"), PolicyDocument: new(`{"Version":"2012-10-17","Statement":` + statement + `}`)})
}

func TestWhoMayUseAKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	made, err := w.root.CreateKey(ctx, &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	id, arn := made.KeyMetadata.KeyId, *made.KeyMetadata.Arn
	mine := map[string]string{"cluster": "a"}
	encrypt := func(c map[string]string) string {
		_, err := w.role.Encrypt(ctx, &kms.EncryptInput{KeyId: id, Plaintext: []byte("x"), EncryptionContext: c})
		if err != nil {
			return code(err)
		}
		return ""
	}
	if got := encrypt(mine); got != "AccessDeniedException" {
		t.Errorf("a role without rights: %q", got)
	}
	w.policy(t, `{"Effect":"Allow","Action":"kms:Encrypt","Resource":"`+arn+`","Condition":{"StringEquals":{"kms:EncryptionContext:cluster":"a"}}}`)
	if got := encrypt(mine); got != "" {
		t.Errorf("by its own policy: %q", got)
	}
	if got := encrypt(map[string]string{"cluster": "b"}); got != "AccessDeniedException" {
		t.Errorf("another context: %q", got)
	}
	put := func(policy string) {
		t.Helper()
		if _, err := w.root.PutKeyPolicy(ctx, &kms.PutKeyPolicyInput{KeyId: id, Policy: &policy}); err != nil {
			t.Fatal(err)
		}
	}
	put(`{"Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::000000000000:role/other"},"Action":"kms:*","Resource":"*"},` +
		`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::000000000000:root"},"Action":["kms:*Policy","kms:*Grant","kms:*Grants"],"Resource":"*"}]}`)
	if got := encrypt(mine); got != "AccessDeniedException" {
		t.Errorf("a key that does not delegate to the account: %q", got)
	}
	grant, err := w.root.CreateGrant(ctx, &kms.CreateGrantInput{
		KeyId: id, GranteePrincipal: aws.String(roleARN), Operations: []types.GrantOperation{types.GrantOperationEncrypt},
		Constraints: &types.GrantConstraints{EncryptionContextEquals: mine},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := encrypt(mine) + encrypt(map[string]string{"cluster": "a", "x": "y"}); got != "AccessDeniedException" {
		t.Errorf("by a grant for one context: %q", got)
	}
	if _, err := w.root.RevokeGrant(ctx, &kms.RevokeGrantInput{KeyId: id, GrantId: grant.GrantId}); err != nil {
		t.Fatal(err)
	}
	put(`{"Statement":[{"Effect":"Allow","Principal":{"AWS":"` + roleARN + `"},"Action":"kms:Encrypt","Resource":"*"},` +
		`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::000000000000:root"},"Action":"kms:*Policy","Resource":"*"}]}`)
	if got := encrypt(mine); got != "" {
		t.Errorf("by the key's policy alone: %q", got)
	}
	put(`{"Statement":[{"Effect":"Allow","Principal":"*","Action":"kms:*","Resource":"*"},{"Effect":"Deny","Principal":{"AWS":"` + roleARN + `"},"Action":"kms:Encrypt","Resource":"*"}]}`)
	if got := encrypt(mine); got != "AccessDeniedException" {
		t.Errorf("against a deny: %q", got)
	}
	_, err = w.root.PutKeyPolicy(ctx, &kms.PutKeyPolicyInput{KeyId: id, Policy: aws.String(`{"Statement":{"Effect":"Allow"}}`)})
	if code(err) != "MalformedPolicyDocumentException" {
		t.Errorf("a broken policy: %v", err)
	}
}

func TestUseViaAnotherService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made, err := w.root.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	w.policy(t, `{"Effect":"Allow","Action":"kms:GenerateDataKey","Resource":"*","Condition":{"StringEquals":{"kms:ViaService":"s3.us-east-1.amazonaws.com"}}}`)
	ctx := wire.WithAuthorizer(wire.WithCaller(t.Context(), w.caller), w.iam)
	arn, err := w.service.UseKey(ctx, "GenerateDataKey", *made.KeyMetadata.KeyId, "s3", nil)
	if err != nil || arn != *made.KeyMetadata.Arn {
		t.Errorf("via s3: %s, %v", arn, err)
	}
	if _, err := w.service.UseKey(ctx, "GenerateDataKey", *made.KeyMetadata.KeyId, "ec2", nil); err == nil {
		t.Error("via ec2 it is allowed too")
	}
	_, err = w.role.GenerateDataKey(t.Context(), &kms.GenerateDataKeyInput{KeyId: made.KeyMetadata.KeyId, KeySpec: types.DataKeySpecAes256})
	if code(err) != "AccessDeniedException" {
		t.Errorf("directly: %v", err)
	}
}

func TestReEncryptAndAliases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	var ids []*string
	for range 2 {
		made, err := w.root.CreateKey(ctx, &kms.CreateKeyInput{})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made.KeyMetadata.KeyId)
	}
	sealed, err := w.root.Encrypt(ctx, &kms.EncryptInput{KeyId: ids[0], Plaintext: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	moved, err := w.root.ReEncrypt(ctx, &kms.ReEncryptInput{CiphertextBlob: sealed.CiphertextBlob, DestinationKeyId: ids[1], DestinationEncryptionContext: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := w.root.Decrypt(ctx, &kms.DecryptInput{CiphertextBlob: moved.CiphertextBlob, KeyId: ids[1], EncryptionContext: map[string]string{"a": "b"}})
	if err != nil || string(opened.Plaintext) != "x" {
		t.Errorf("decrypted %+v, %v", opened, err)
	}
	_, err = w.root.Decrypt(ctx, &kms.DecryptInput{CiphertextBlob: moved.CiphertextBlob, KeyId: ids[0], EncryptionContext: map[string]string{"a": "b"}})
	if code(err) != "IncorrectKeyException" {
		t.Errorf("another key: %v", err)
	}
	for name, want := range map[string]string{"x": "ValidationException", "alias/": "InvalidAliasNameException", "alias/a b": "InvalidAliasNameException", "alias/aws/x": "NotAuthorizedException"} {
		if _, err := w.root.CreateAlias(ctx, &kms.CreateAliasInput{AliasName: &name, TargetKeyId: ids[0]}); code(err) != want {
			t.Errorf("alias %q: %v", name, err)
		}
	}
	if _, err := w.root.CreateAlias(ctx, &kms.CreateAliasInput{AliasName: aws.String("alias/x"), TargetKeyId: ids[0]}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.root.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: aws.String("alias/x")}); err != nil {
		t.Errorf("describe by alias: %v", err)
	}
	if _, err := w.root.DisableKey(ctx, &kms.DisableKeyInput{KeyId: aws.String("alias/x")}); code(err) != "NotFoundException" {
		t.Errorf("disable by alias: %v", err)
	}
}

// TestKeyPolicyBindsRoot: a Deny of a key policy binds the account's root, and KMS refuses a policy that nobody could
// replace.
func TestKeyPolicyBindsRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made, err := w.root.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	id := made.KeyMetadata.KeyId
	policy := func(denied string) *string {
		return aws.String(`{"Version":"2012-10-17","Statement":[` +
			`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::000000000000:root"},"Action":"kms:*","Resource":"*"},` +
			`{"Effect":"Deny","Principal":"*","Action":"` + denied + `","Resource":"*"}]}`)
	}
	if _, err := w.root.PutKeyPolicy(t.Context(), &kms.PutKeyPolicyInput{KeyId: id, Policy: policy("kms:Put*")}); code(err) != "MalformedPolicyDocumentException" {
		t.Errorf("a policy that locks everybody out: %v", err)
	}
	if _, err := w.root.PutKeyPolicy(t.Context(), &kms.PutKeyPolicyInput{KeyId: id, Policy: policy("kms:Encrypt")}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.root.Encrypt(t.Context(), &kms.EncryptInput{KeyId: id, Plaintext: []byte("x")}); code(err) != "AccessDeniedException" {
		t.Errorf("a denied action of root: %v", err)
	}
}

// TestLockoutCheckAsksForTheCaller: KMS takes a policy for a key only from who may replace it later, or who bypasses that
// check. A policy that leaves access to IAM is no permission of a caller whose own policies do not allow kms:PutKeyPolicy.
func TestLockoutCheckAsksForTheCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := aws.String(`{"Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::000000000000:root"},"Action":"kms:*","Resource":"*"}]}`)
	own := aws.String(`{"Statement":[{"Effect":"Allow","Principal":{"AWS":"` + roleARN + `"},"Action":"kms:*","Resource":"*"}]}`)
	create := func(policy *string, bypass bool) string {
		_, err := w.role.CreateKey(t.Context(), &kms.CreateKeyInput{Policy: policy, BypassPolicyLockoutSafetyCheck: bypass})
		if err == nil {
			return ""
		}
		return code(err)
	}
	const refused = "MalformedPolicyDocumentException"
	w.policy(t, `{"Effect":"Allow","Action":"kms:CreateKey","Resource":"*"}`)
	if got := create(root, false); got != refused {
		t.Errorf("by a caller who may not change the policy: %q", got)
	}
	if got := create(root, true) + create(own, false) + create(nil, false); got != "" {
		t.Errorf("bypassed, by the key's policy, or without a policy: %q", got)
	}
	w.policy(t, `{"Effect":"Allow","Action":["kms:CreateKey","kms:PutKeyPolicy"],"Resource":"*"}`)
	if got := create(root, false); got != "" {
		t.Errorf("by a caller who may change the policy: %q", got)
	}

	made, err := w.role.CreateKey(t.Context(), &kms.CreateKeyInput{Policy: own})
	if err != nil {
		t.Fatal(err)
	}
	w.policy(t, `{"Effect":"Allow","Action":"kms:CreateKey","Resource":"*"}`)
	_, err = w.role.PutKeyPolicy(t.Context(), &kms.PutKeyPolicyInput{KeyId: made.KeyMetadata.KeyId, Policy: root})
	if code(err) != refused {
		t.Errorf("a later policy: %v", err)
	}
	_, err = w.role.PutKeyPolicy(t.Context(), &kms.PutKeyPolicyInput{KeyId: made.KeyMetadata.KeyId, Policy: root, BypassPolicyLockoutSafetyCheck: true})
	if err != nil {
		t.Errorf("a later policy that bypasses the check: %v", err)
	}
}

// TestConditionOnTheBypass: a policy, such as one of an organization, can deny requests that bypass the lockout check.
func TestConditionOnTheBypass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(t, `[{"Effect":"Allow","Action":"kms:*","Resource":"*"},{"Effect":"Deny","Action":["kms:CreateKey","kms:PutKeyPolicy"],`+
		`"Resource":"*","Condition":{"Bool":{"kms:BypassPolicyLockoutSafetyCheck":"true"}}}]`)
	if _, err := w.role.CreateKey(t.Context(), &kms.CreateKeyInput{BypassPolicyLockoutSafetyCheck: true}); code(err) != "AccessDeniedException" {
		t.Errorf("a new key: %v", err)
	}
	made, err := w.role.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	policy := aws.String(`{"Statement":{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::000000000000:root"},"Action":"kms:*","Resource":"*"}}`)
	_, err = w.role.PutKeyPolicy(t.Context(), &kms.PutKeyPolicyInput{KeyId: made.KeyMetadata.KeyId, Policy: policy, BypassPolicyLockoutSafetyCheck: true})
	if code(err) != "AccessDeniedException" {
		t.Errorf("a later policy: %v", err)
	}
	if _, err = w.role.PutKeyPolicy(t.Context(), &kms.PutKeyPolicyInput{KeyId: made.KeyMetadata.KeyId, Policy: policy}); err != nil {
		t.Errorf("a later policy without bypass: %v", err)
	}
}

// TestRequestAlias: a policy can allow DescribeKey by the alias in the request, whatever other names the key has.
func TestRequestAlias(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made, err := w.root.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alias/mine", "alias/other"} {
		if _, err := w.root.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: &name, TargetKeyId: made.KeyMetadata.KeyId}); err != nil {
			t.Fatal(err)
		}
	}
	w.policy(t, `{"Effect":"Allow","Action":"kms:DescribeKey","Resource":"*","Condition":{"StringEquals":{"kms:RequestAlias":"alias/mine"}}}`)
	const arn = "arn:aws:kms:us-east-1:000000000000:"
	for name, want := range map[string]string{
		"alias/mine": "", arn + "alias/mine": "", "alias/other": "AccessDeniedException", *made.KeyMetadata.KeyId: "AccessDeniedException",
	} {
		_, err := w.role.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: &name})
		if err == nil && want != "" || err != nil && code(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
