// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const (
	oidcHost       = "slipway-test-oidc.s3.us-east-1.amazonaws.com"
	discoveryStore = "s3://slipway-test-oidc/prod"
	podIssuer      = "https://" + oidcHost + "/prod/demo"
	rolePrefix     = iamOf + "role/slipway/us-east-1/demo/demo.sa-"
	readerRole     = rolePrefix + "shop.reader.us-east-1"
	writerRole     = rolePrefix + "shop.writer.us-east-1"
)

// podSpec is the part of a manifest for two service accounts with roles.
const podSpec = `  serviceAccountIssuerDiscovery: {discoveryStore: ` + discoveryStore + `}
  iam:
    serviceAccountExternalPermissions:
    - {name: reader, namespace: shop, aws: {inlinePolicy: '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::orders/*"}]}'}}
    - {name: writer, namespace: shop, aws: {inlinePolicy: '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:PutObject","Resource":"arn:aws:s3:::orders/*"}]}'}}
`

// podLab is a lab with a cluster whose service accounts have roles, a bucket that these may use, and the key with which
// the cluster signs tokens.
type podLab struct {
	*lab
	key pki.Key
}

func newPodLab(t *testing.T) podLab {
	t.Helper()
	l := newLab(t)
	l.must(caller{}, 0, "iam", "init-discovery", discoveryStore, "--yes")
	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	text := l.must(caller{}, 0, "get", "clusters", "demo", "-o", "yaml")
	file := l.temporaryFile("demo.yaml", strings.Replace(text, "  networking:\n", podSpec+"  networking:\n", 1))
	l.must(caller{}, 0, "replace", "-f", file, "--yes")
	l.must(caller{}, 0, "apply", "demo", "--yes")
	orders := l.s3(caller{})
	_, err := orders.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: sdk.String("orders")})
	l.check(err)
	_, err = orders.PutObject(t.Context(), &s3.PutObjectInput{Bucket: sdk.String("orders"), Key: sdk.String("1"), Body: strings.NewReader("x")})
	l.check(err)

	return podLab{lab: l, key: l.serviceAccountKey()}
}

// instanceOf returns a running machine of a role.
func (p podLab) instanceOf(api *ec2.Client, role string) ec2types.Instance {
	p.Helper()
	out, err := api.DescribeInstances(p.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
		{Name: sdk.String("tag:slipway.dev/role"), Values: []string{role}},
		{Name: sdk.String("instance-state-name"), Values: []string{"pending", "running"}},
	}})
	p.check(err)
	if len(out.Reservations) == 0 {
		p.Fatalf("there is no machine of role %s", role)
	}

	return out.Reservations[0].Instances[0]
}

// serviceAccountKey opens the key of the cluster as root.
func (l *lab) serviceAccountKey() pki.Key {
	l.Helper()
	cfg := l.config(caller{})
	s, sealer, err := store.Open(l.Context(), stateURL, store.Options{AWS: func(context.Context) (sdk.Config, error) { return cfg, nil }})
	l.check(err)
	public, err := pki.LoadPublicBundle(l.Context(), s, "demo")
	l.check(err)
	bundle, err := pki.LoadPrivateBundle(l.Context(), s, sealer, "demo", public)
	l.check(err)

	return bundle.ServiceAccount
}

// private returns the key as the API server has it.
func (p podLab) private() *ecdsa.PrivateKey {
	p.Helper()
	text, err := p.key.PEM()
	p.check(err)
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	p.check(err)
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		p.Fatalf("the key is %T", key)
	}

	return private
}

// sign returns a token of shop/reader as the API server signs it, with these claims instead of the usual ones.
func (p podLab) sign(key *ecdsa.PrivateKey, change map[string]any) string {
	p.Helper()
	der, err := x509.MarshalPKIXPublicKey(p.private().Public())
	p.check(err)
	id := sha256.Sum256(der)
	now := time.Now()
	claims := map[string]any{
		"iss": podIssuer, "sub": "system:serviceaccount:shop:reader", "aud": []string{"sts.amazonaws.com"},
		"exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "nbf": now.Unix(),
	}
	maps.Copy(claims, change)
	encode := func(v any) string {
		b, err := json.Marshal(v)
		p.check(err)

		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := encode(map[string]string{"alg": "ES256", "kid": base64.RawURLEncoding.EncodeToString(id[:])}) + "." + encode(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	p.check(err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])

	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// createAccount gives a service account a role with a policy.
func (p podLab) createAccount(namespace, account, policy string) {
	p.Helper()
	file := p.temporaryFile("policy.json", policy)
	p.must(caller{}, 0, "iam", "service-account", "create", account, "-n", namespace, "--policy-file", file, "--name", "demo", "--yes")
}

// startAccount is createAccount with an apply, and with a permissions boundary that has these statements more.
func (p podLab) startAccount(namespace, account, policy string, boundary []any) {
	p.Helper()
	p.createAccount(namespace, account, policy)
	p.must(caller{}, 0, "apply", "demo", "--yes")
	p.allowAtMost(boundary)
}

// assumeAs returns the credentials of a role that a pod of a service account has.
func (p podLab) assumeAs(role, namespace, account string) caller {
	p.Helper()
	token := p.sign(p.private(), map[string]any{"sub": "system:serviceaccount:" + namespace + ":" + account})
	c, err := p.assumeWith(role, token)
	p.check(err)

	return c
}

// assumeWith exchanges a token for credentials of a role, without any other credentials.
func (p podLab) assumeWith(role, token string) (caller, error) {
	cfg := p.config(caller{key: "none", secret: "none"})
	out, err := sts.NewFromConfig(cfg).AssumeRoleWithWebIdentity(p.Context(), &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: &role, RoleSessionName: sdk.String("pod"), WebIdentityToken: &token,
	})
	if err != nil {
		return caller{}, err
	}
	c := out.Credentials

	return caller{key: *c.AccessKeyId, secret: *c.SecretAccessKey, token: *c.SessionToken}, nil
}

// refused checks that STS refused a token with a code.
func (p podLab) refused(what, code string, err error) {
	p.Helper()
	var refusal smithy.APIError
	if !asAPIError(err, &refusal) || refusal.ErrorCode() != code {
		p.Errorf("%s: the attack succeeded or failed for another reason: %v, want %s", what, err, code)
	}
}

// extendBoundary lets machines and pods use the bucket, as an administrator does.
func (p podLab) extendBoundary() {
	p.Helper()
	p.allowAtMost([]any{map[string]any{
		"Sid": "Orders", "Effect": "Allow", "Action": []string{"s3:GetObject", "s3:PutObject"}, "Resource": "arn:aws:s3:::orders/*",
	}})
}

// checkReader checks what the credentials of the reader's role may do.
func (p podLab) checkReader(c caller) {
	p.Helper()
	who, err := sts.NewFromConfig(p.config(c)).GetCallerIdentity(p.Context(), &sts.GetCallerIdentityInput{})
	p.check(err)
	if want := "arn:aws:sts::" + regiontest.AccountID + ":assumed-role/demo.sa-shop.reader.us-east-1/pod"; *who.Arn != want {
		p.Errorf("the pod is %s, want %s", *who.Arn, want)
	}
	api := p.s3(c)
	_, err = api.GetObject(p.Context(), &s3.GetObjectInput{Bucket: sdk.String("orders"), Key: sdk.String("1")})
	p.check(err)
	_, err = api.PutObject(p.Context(), &s3.PutObjectInput{Bucket: sdk.String("orders"), Key: sdk.String("1"), Body: strings.NewReader("y")})
	p.denied("the reader writes", err)
	_, err = api.GetObject(p.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: sdk.String("team/demo/pki/private/service-account")})
	p.denied("the reader reads the cluster's keys", err)
	_, err = api.PutObject(p.Context(), &s3.PutObjectInput{Bucket: sdk.String("slipway-test-oidc"), Key: sdk.String("prod/demo/openid/v1/jwks"), Body: strings.NewReader("{}")})
	p.denied("the reader replaces the keys of the issuer", err)
}

// TestPodsGetTheirOwnRoleOnly: without the conditions in the trust policy, a token of any service account was seen to get
// the credentials of every role of a service account.
func TestPodsGetTheirOwnRoleOnly(t *testing.T) {
	p := newPodLab(t)
	key := p.private()
	c, err := p.assumeWith(readerRole, p.sign(key, nil))
	p.check(err)
	_, err = p.s3(c).GetObject(t.Context(), &s3.GetObjectInput{Bucket: sdk.String("orders"), Key: sdk.String("1")})
	p.denied("a role with more than the boundary", err)
	p.extendBoundary()
	p.checkReader(c)

	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p.check(err)
	subject := func(namespace, name string) map[string]any {
		return map[string]any{"sub": "system:serviceaccount:" + namespace + ":" + name}
	}
	for name, attack := range map[string]struct{ role, token, code string }{
		"the role of another service account":          {writerRole, p.sign(key, nil), "AccessDenied"},
		"a service account without a role":             {readerRole, p.sign(key, subject("shop", "default")), "AccessDenied"},
		"the same name in another namespace":           {readerRole, p.sign(key, subject("dev", "reader")), "AccessDenied"},
		"a namespace that ends like the other":         {readerRole, p.sign(key, subject("x:shop", "reader")), "AccessDenied"},
		"a name that begins like the other":            {readerRole, p.sign(key, subject("shop", "reader2")), "AccessDenied"},
		"a pattern":                                    {readerRole, p.sign(key, subject("*", "*")), "AccessDenied"},
		"the role of the workers":                      {iamOf + "role/slipway/us-east-1/demo/demo.worker.us-east-1", p.sign(key, nil), "AccessDenied"},
		"the role of the control plane":                {iamOf + "role/slipway/us-east-1/demo/demo.control-plane-a.us-east-1", p.sign(key, nil), "AccessDenied"},
		"the usual token of a pod":                     {readerRole, p.sign(key, map[string]any{"aud": []string{podIssuer}}), "InvalidIdentityToken"},
		"a token for another service":                  {readerRole, p.sign(key, map[string]any{"aud": []string{"vault"}}), "InvalidIdentityToken"},
		"a token for two services":                     {readerRole, p.sign(key, map[string]any{"aud": []string{"sts.amazonaws.com", "vault"}}), "InvalidIdentityToken"},
		"an expired token":                             {readerRole, p.sign(key, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), "ExpiredTokenException"},
		"a token of an issuer that IAM does not know":  {readerRole, p.sign(key, map[string]any{"iss": "https://kubernetes.default.svc"}), "InvalidIdentityToken"},
		"a token of another cluster in the same store": {readerRole, p.sign(key, map[string]any{"iss": podIssuer + "-2"}), "InvalidIdentityToken"},
		"a token that somebody else signed":            {readerRole, p.sign(stranger, nil), "InvalidIdentityToken"},
	} {
		_, err := p.assumeWith(attack.role, attack.token)
		p.refused(name, attack.code, err)
	}
	_, err = sts.NewFromConfig(p.config(p.assumed("demo.worker.us-east-1"))).AssumeRole(t.Context(), &sts.AssumeRoleInput{
		RoleArn: sdk.String(readerRole), RoleSessionName: sdk.String("worker"),
	})
	p.denied("a worker assumes a pod's role", err)
}

// TestIssuerDocumentsAreSafe: whoever can write the documents can sign tokens of every service account. Only the operator
// of the cluster can; everybody can read them, and nothing else. Never open: roles for pods and this test were made together.
func TestIssuerDocumentsAreSafe(t *testing.T) {
	p := newPodLab(t)
	l := p.lab
	everybody := l.region.AWSConfig()
	everybody.Credentials = sdk.AnonymousCredentials{}
	anonymous := s3.NewFromConfig(everybody, func(o *s3.Options) { o.UsePathStyle = true })
	name := sdk.String("slipway-test-oidc")
	callers := map[string]caller{
		"worker":              l.assumed("demo.worker.us-east-1"),
		"control plane":       l.assumed("demo.control-plane-a.us-east-1"),
		"reader":              l.user("reader", l.policies("demo", "--read-only", "--allow-existing")),
		"operator of another": l.user("neighbour", l.policies("demo-2")),
	}
	for _, key := range []string{"prod/demo/.well-known/openid-configuration", "prod/demo/openid/v1/jwks"} {
		_, err := anonymous.GetObject(t.Context(), &s3.GetObjectInput{Bucket: name, Key: &key})
		l.check(err)
		for who, c := range callers {
			_, err := l.s3(c).PutObject(t.Context(), &s3.PutObjectInput{Bucket: name, Key: &key, Body: strings.NewReader("{}")})
			l.denied(who+" replaces "+key, err)
		}
		_, err = anonymous.PutObject(t.Context(), &s3.PutObjectInput{Bucket: name, Key: &key, Body: strings.NewReader("{}")})
		l.denied("everybody replaces "+key, err)
	}
	_, err := anonymous.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: name})
	l.denied("everybody lists the bucket", err)
	other := sdk.String("prod/demo/notes.txt")
	_, err = l.s3(caller{}).PutObject(t.Context(), &s3.PutObjectInput{Bucket: name, Key: other, Body: strings.NewReader("x")})
	l.check(err)
	_, err = anonymous.GetObject(t.Context(), &s3.GetObjectInput{Bucket: name, Key: other})
	l.denied("everybody reads what is no document", err)
}

// TestDocumentsOfAnotherCluster: two state stores with a cluster of the same name and one discovery store. The second
// cluster must not replace the keys of the first one: its pods would get the roles of the first. Never open: roles for pods and this
// test were made together.
func TestDocumentsOfAnotherCluster(t *testing.T) {
	p := newPodLab(t)
	p.must(caller{}, 0, "state", "init", "--state", "s3://slipway-test/other", "--yes")
	p.must(caller{}, 0, "create", "cluster", "demo", "--state", "s3://slipway-test/other", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	text := p.must(caller{}, 0, "get", "clusters", "demo", "--state", "s3://slipway-test/other", "-o", "yaml")
	file := p.temporaryFile("other.yaml", strings.Replace(text, "  networking:\n", podSpec+"  networking:\n", 1))
	p.must(caller{}, 0, "replace", "--state", "s3://slipway-test/other", "-f", file, "--yes")
	_, errs, code := p.slipway(caller{}, "render", "cloudformation", "demo", "--state", "s3://slipway-test/other", "--publish", "--yes")
	if code != 1 || !strings.Contains(errs, "belongs to another cluster of this name") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if _, err := p.assumeWith(readerRole, p.sign(p.private(), nil)); err != nil {
		t.Errorf("the first cluster's pods: %v", err)
	}
}

// TestRealTokens: tokens of a real kube-apiserver with the key and the issuer of the cluster. Seen to succeed for others without the
// conditions of the trust policy.
func TestRealTokens(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	p := newPodLab(t)
	p.extendBoundary()
	server := startRealAPI(t, signWith(t, p.key, podIssuer))
	api, token := server.api, server.accountToken
	for _, account := range []struct{ namespace, name string }{{"shop", "reader"}, {"shop", "other"}, {"dev", "reader"}} {
		_, _ = api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: account.namespace}}, metav1.CreateOptions{})
		_, err := api.CoreV1().ServiceAccounts(account.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account.name}}, metav1.CreateOptions{})
		p.check(err)
	}

	c, err := p.assumeWith(readerRole, token("shop", "reader", "sts.amazonaws.com"))
	p.check(err)
	p.checkReader(c)
	_, err = p.assumeWith(readerRole, token("shop", "other", "sts.amazonaws.com"))
	p.refused("another service account", "AccessDenied", err)
	_, err = p.assumeWith(readerRole, token("dev", "reader", "sts.amazonaws.com"))
	p.refused("another namespace", "AccessDenied", err)
	_, err = p.assumeWith(writerRole, token("shop", "reader", "sts.amazonaws.com"))
	p.refused("another role", "AccessDenied", err)
	_, err = p.assumeWith(readerRole, token("shop", "reader"))
	p.refused("the token for the API server", "InvalidIdentityToken", err)
}

// TestCredentialsAreNotNeeded makes sure that the tests above use no credentials but the token's. No attack: what the other tests rely
// on.
func TestCredentialsAreNotNeeded(t *testing.T) {
	l := newLab(t)
	cfg := l.region.AWSConfig()
	cfg.Credentials = credentials.NewStaticCredentialsProvider("none", "none", "")
	_, err := sts.NewFromConfig(cfg).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	var refusal smithy.APIError
	if !asAPIError(err, &refusal) {
		t.Errorf("a caller without credentials: %v", err)
	}
}
