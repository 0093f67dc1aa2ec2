// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// issuer is a cluster that signs tokens of service accounts.
type issuer struct {
	url string
	id  string // of the key
	key *rsa.PrivateKey
}

func newIssuer(t *testing.T, bucket string) issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return issuer{url: "https://" + bucket + ".s3.us-east-1.amazonaws.com/demo", id: "one", key: key}
}

func encode(v any) string {
	b, _ := json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(b)
}

// sign returns a token with these claims instead of the usual ones.
func (i issuer) sign(t *testing.T, change map[string]any) string {
	t.Helper()
	claims := map[string]any{
		"iss": i.url, "sub": "system:serviceaccount:default:reader", "aud": []string{"sts.amazonaws.com"},
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "nbf": time.Now().Unix(),
	}
	maps.Copy(claims, change)
	text := encode(map[string]string{"alg": "RS256", "kid": i.id}) + "." + encode(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, 5, sum[:]) // 5: crypto.SHA256
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// publish writes the discovery document and the keys into the bucket.
func (i issuer) publish(t *testing.T, c *s3.Client, bucket string, keys ...issuer) {
	t.Helper()
	var list []map[string]string
	for _, k := range keys {
		list = append(list, map[string]string{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": k.id, "n": base64.RawURLEncoding.EncodeToString(k.key.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(k.key.E)).Bytes()),
		})
	}
	for name, v := range map[string]any{
		".well-known/openid-configuration": map[string]any{"issuer": i.url, "jwks_uri": i.url + "/openid/v1/jwks"},
		"openid/v1/jwks":                   map[string]any{"keys": list},
	} {
		b, _ := json.Marshal(v)
		_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("demo/" + name), Body: strings.NewReader(string(b))})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// openBucket creates a bucket that everybody can read.
func openBucket(t *testing.T, c *s3.Client, bucket string) {
	t.Helper()
	_, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket})
	_, err2 := c.DeletePublicAccessBlock(t.Context(), &s3.DeletePublicAccessBlockInput{Bucket: &bucket})
	_, err3 := c.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &bucket, Policy: aws.String(`{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::` + bucket + `/demo/*"}]}`)})
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
}

// federation is a region with an issuer, its provider, and a role for one service account.
type federation struct {
	*testing.T
	region       regiontest.Region
	iam          *iam.Client
	s3           *s3.Client
	issuer       issuer
	provider     string
	role         string
	unsignedOnly *sts.Client
}

func newFederation(t *testing.T) federation {
	t.Helper()
	r := regiontest.Start(t)
	f := federation{T: t, region: r, issuer: newIssuer(t, "oidc"), iam: iam.NewFromConfig(r.AWSConfig())}
	f.s3 = s3.NewFromConfig(r.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	cfg := r.AWSConfig()
	cfg.Credentials = credentials.NewStaticCredentialsProvider("none", "none", "") // the request is unsigned: nobody reads them
	f.unsignedOnly = sts.NewFromConfig(cfg)
	openBucket(t, f.s3, "oidc")
	f.issuer.publish(t, f.s3, "oidc", f.issuer)
	f.provider = f.addProvider(f.issuer.url)
	f.role = f.addRole("reader", f.provider, `{"StringEquals":{
		"`+strings.TrimPrefix(f.issuer.url, "https://")+`:sub":"system:serviceaccount:default:reader",
		"`+strings.TrimPrefix(f.issuer.url, "https://")+`:aud":"sts.amazonaws.com"}}`)
	return f
}

func (f federation) addProvider(url string) string {
	f.Helper()
	out, err := f.iam.CreateOpenIDConnectProvider(f.Context(), &iam.CreateOpenIDConnectProviderInput{
		Url: &url, ClientIDList: []string{"sts.amazonaws.com"}, Tags: []iamtypes.Tag{{Key: aws.String("a"), Value: aws.String("b")}},
	})
	if err != nil {
		f.Fatal(err)
	}
	return *out.OpenIDConnectProviderArn
}

func (f federation) addRole(name, provider, condition string) string {
	f.Helper()
	out, err := f.iam.CreateRole(f.Context(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: aws.String(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":"` + provider + `"},"Action":"sts:AssumeRoleWithWebIdentity","Condition":` + condition + `}]}`)})
	if err != nil {
		f.Fatal(err)
	}
	_, err = f.iam.PutRolePolicy(f.Context(), &iam.PutRolePolicyInput{RoleName: &name, PolicyName: aws.String("p"), PolicyDocument: aws.String(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:ListBucket","Resource":"arn:aws:s3:::oidc"}]}`)})
	if err != nil {
		f.Fatal(err)
	}
	return *out.Role.Arn
}

func (f federation) assume(role, token string) (*sts.AssumeRoleWithWebIdentityOutput, error) {
	return f.unsignedOnly.AssumeRoleWithWebIdentity(f.Context(), &sts.AssumeRoleWithWebIdentityInput{RoleArn: &role, RoleSessionName: aws.String("pod"), WebIdentityToken: &token})
}

// refusedWith checks that a request was refused with a code.
func (f federation) refusedWith(what, code string, err error) {
	f.Helper()
	if e, ok := errors.AsType[smithy.APIError](err); !ok || e.ErrorCode() != code {
		f.Errorf("%s: %v, want %s", what, err, code)
	}
}

func TestServiceAccountGetsTheCredentialsOfItsRole(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	out, err := f.assume(f.role, f.issuer.sign(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	if *out.Provider != f.provider || *out.SubjectFromWebIdentityToken != "system:serviceaccount:default:reader" || *out.Audience != "sts.amazonaws.com" {
		t.Errorf("%+v", out)
	}
	cfg := f.region.AWSConfig()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(*out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey, *out.Credentials.SessionToken)
	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	if err != nil || !strings.HasSuffix(*who.Arn, ":assumed-role/reader/pod") {
		t.Errorf("identity: %v, %v", who, err)
	}
	mine := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := mine.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String("oidc")}); err != nil {
		t.Errorf("what the role may do: %v", err)
	}
	_, err = mine.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("oidc"), Key: aws.String("demo/openid/v1/jwks"), Body: strings.NewReader("{}")})
	f.refusedWith("what the role may not do", "AccessDenied", err)
}

func TestTokensOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	other := newIssuer(t, "other")
	openBucket(t, f.s3, "other")
	other.publish(t, f.s3, "other", other)
	noProvider := other.sign(t, nil)
	_, err := f.assume(f.role, noProvider)
	f.refusedWith("an issuer without provider", "InvalidIdentityToken", err)
	f.addProvider(other.url)
	imposter := f.issuer
	imposter.key = other.key
	otherKey := f.issuer
	otherKey.id = "two"
	none := encode(map[string]string{"alg": "none", "kid": "one"}) + "." + strings.Split(f.issuer.sign(t, nil), ".")[1] + "."
	valid := strings.Split(f.issuer.sign(t, nil), ".")
	forged := valid[0] + "." + strings.Split(f.issuer.sign(t, map[string]any{"sub": "system:serviceaccount:kube-system:admin"}), ".")[1] + "." + valid[2]
	for name, c := range map[string]struct{ role, token, code string }{
		"another service account":            {f.role, f.issuer.sign(t, map[string]any{"sub": "system:serviceaccount:default:writer"}), "AccessDenied"},
		"the same name in another namespace": {f.role, f.issuer.sign(t, map[string]any{"sub": "system:serviceaccount:dev:reader"}), "AccessDenied"},
		"the provider of another cluster":    {f.role, other.sign(t, nil), "AccessDenied"},
		"a role that does not exist":         {strings.Replace(f.role, "reader", "nobody", 1), f.issuer.sign(t, nil), "AccessDenied"},
		"another audience":                   {f.role, f.issuer.sign(t, map[string]any{"aud": []string{"https://kubernetes.default.svc"}}), "InvalidIdentityToken"},
		"two audiences":                      {f.role, f.issuer.sign(t, map[string]any{"aud": []string{"sts.amazonaws.com", "vault"}}), "InvalidIdentityToken"},
		"expired":                            {f.role, f.issuer.sign(t, map[string]any{"exp": time.Now().Add(-time.Second).Unix()}), "ExpiredTokenException"},
		"not valid yet":                      {f.role, f.issuer.sign(t, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), "InvalidIdentityToken"},
		"without an expiration":              {f.role, f.issuer.sign(t, map[string]any{"exp": nil}), "InvalidIdentityToken"},
		"signed by another key":              {f.role, imposter.sign(t, nil), "InvalidIdentityToken"},
		"with an unknown key":                {f.role, otherKey.sign(t, nil), "InvalidIdentityToken"},
		"unsigned":                           {f.role, none, "InvalidIdentityToken"},
		"the signature of another token":     {f.role, forged, "InvalidIdentityToken"},
		"no token":                           {f.role, "abcd", "InvalidIdentityToken"},
	} {
		_, err := f.assume(c.role, c.token)
		f.refusedWith(name, c.code, err)
	}
	_, err = f.iam.DeleteOpenIDConnectProvider(t.Context(), &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: &f.provider})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.assume(f.role, f.issuer.sign(t, nil))
	f.refusedWith("after the provider was deleted", "InvalidIdentityToken", err)
}

// STS reads the issuer's documents as anybody, and accepts each key that they list: so keys rotate without downtime.
func TestIssuerDocumentsArePublicAndRotate(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	next := newIssuer(t, "oidc")
	next.id = "two"
	_, err := f.assume(f.role, next.sign(t, nil))
	f.refusedWith("a key that is not published", "InvalidIdentityToken", err)
	f.issuer.publish(t, f.s3, "oidc", f.issuer, next)
	for _, i := range []issuer{f.issuer, next} {
		if _, err := f.assume(f.role, i.sign(t, nil)); err != nil {
			t.Errorf("key %s: %v", i.id, err)
		}
	}
	f.issuer.publish(t, f.s3, "oidc", next)
	_, err = f.assume(f.role, f.issuer.sign(t, nil))
	f.refusedWith("the former key", "InvalidIdentityToken", err)
	if _, err := f.s3.DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: aws.String("oidc")}); err != nil {
		t.Fatal(err)
	}
	_, err = f.assume(f.role, next.sign(t, nil))
	f.refusedWith("documents that are not public", "InvalidIdentityToken", err)
}

// A trust policy that names no provider lets no token in, and a Deny for everybody keeps one out.
func TestTrustNamesTheProvider(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	for name, document := range map[string]string{
		"everybody":   `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"sts:AssumeRoleWithWebIdentity"}]}`,
		"assume-role": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":"` + f.provider + `"},"Action":"sts:AssumeRole"}]}`,
		"denied": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":"` + f.provider + `"},"Action":"sts:*"},
			{"Effect":"Deny","Principal":"*","Action":"sts:AssumeRoleWithWebIdentity"}]}`,
	} {
		if _, err := f.iam.UpdateAssumeRolePolicy(t.Context(), &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String("reader"), PolicyDocument: &document}); err != nil {
			t.Fatal(err)
		}
		_, err := f.assume(f.role, f.issuer.sign(t, nil))
		f.refusedWith(name, "AccessDenied", err)
	}
}
