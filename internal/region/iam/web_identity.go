// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/oidctoken"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

const assumeWithWebIdentity = "sts:AssumeRoleWithWebIdentity"

// maxTokenSkew is how far the clock of an issuer may be ahead.
const maxTokenSkew = 5 * time.Minute

// WebIdentities exchanges tokens of OpenID Connect providers for credentials of roles. It may be used
// concurrently.
type WebIdentities struct {
	IAM *IAM
	// Fetch returns the document at an https URL, as everybody can read it.
	Fetch func(ctx context.Context, url string) ([]byte, error)
}

// WebIdentityRequest asks for credentials of a role.
type WebIdentityRequest struct {
	RoleARN     string
	SessionName string
	Token       string   // of the OpenID Connect provider
	Life        int64    // seconds; 0 means an hour
	Policies    []string // documents of session policies
}

// WebIdentitySession is an assumed role.
type WebIdentitySession struct {
	Credentials Credentials
	Caller      wire.Caller
	ProviderARN string
	Subject     string // of the token
	Audience    string // of the token
}

// AssumeRole returns new credentials of a role whose trust policy allows the subject of a token. The provider must
// be known to IAM, and its published keys must verify the token. A refusal is a [wire.Error] of STS.
func (w WebIdentities) AssumeRole(ctx context.Context, in WebIdentityRequest) (WebIdentitySession, error) {
	token, err := oidctoken.Parse(in.Token)
	if err != nil {
		return WebIdentitySession{}, newIdentityError("The ID Token provided is not a valid JWT. " +
			"(You may see this error if you sent an Access Token)")
	}

	provider, arn, err := w.findIssuer(token.Issuer)
	if err != nil {
		return WebIdentitySession{}, err
	}

	if err := w.verifyToken(ctx, token); err != nil {
		return WebIdentitySession{}, err
	}

	audience, err := acceptedAudience(token, provider.ClientIDs)
	if err != nil {
		return WebIdentitySession{}, err
	}

	r := authz.Request{
		Action:    assumeWithWebIdentity,
		Resource:  in.RoleARN,
		Principal: authz.Principal{Federated: arn},
		Context:   w.conditionKeys(ctx, in.SessionName, arn),
	}
	r.Context[provider.URL+":aud"] = []string{audience}
	r.Context[provider.URL+":sub"] = []string{token.Subject}
	role, ok := w.IAM.findTrustPolicy(in.RoleARN)
	if !ok || !authz.Evaluate([]authz.Policy{role.trust}, r).Allowed {
		return WebIdentitySession{}, newErrorf(
			codeAccessDenied,
			"Not authorized to perform %s",
			assumeWithWebIdentity,
		)
	}

	life, err := resolveSessionDuration(in.Life, role.maxSession, in.Policies)
	if err != nil {
		return WebIdentitySession{}, err
	}

	c, who, err := w.IAM.issueCredentials(role.name, in.SessionName, life, sessionLimits{policies: in.Policies})

	return WebIdentitySession{
		Credentials: c,
		Caller:      who,
		ProviderARN: arn,
		Subject:     token.Subject,
		Audience:    audience,
	}, err
}

// conditionKeys returns the condition keys of a trust policy, without those of the token.
func (w WebIdentities) conditionKeys(ctx context.Context, session, provider string) map[string][]string {
	keys := wire.ConditionKeys(ctx, wire.AccessCheck{})
	now := w.IAM.cfg.Now().UTC()
	keys["aws:CurrentTime"] = []string{now.Format(time.RFC3339)}
	keys["aws:EpochTime"] = []string{strconv.FormatInt(now.Unix(), 10)}
	keys["aws:FederatedProvider"] = []string{provider}
	keys["sts:RoleSessionName"] = []string{session}

	return keys
}

// findIssuer returns a copy of the provider with an issuer's URL, and its ARN.
func (w WebIdentities) findIssuer(issuer string) (oidcProvider, string, error) {
	name, isHTTPS := strings.CutPrefix(issuer, "https://")
	w.IAM.store.Lock()
	defer w.IAM.store.Unlock()
	p := w.IAM.st.OIDCProviders[name]
	if p == nil || !isHTTPS {
		return oidcProvider{}, "", newIdentityError("No OpenIDConnect provider found in your account for " + issuer)
	}

	return *p, p.providerARN(w.IAM), nil
}

// verifyToken verifies the signature and the times of a token.
func (w WebIdentities) verifyToken(ctx context.Context, token oidctoken.Token) error {
	keys, err := w.fetchKeys(ctx, token.Issuer)
	if err != nil {
		return newIdentityError("Couldn't retrieve verification key from your identity provider, please reference " +
			"AssumeRoleWithWebIdentity documentation for requirements")
	}

	if err := token.Verify(keys); err != nil {
		return newIdentityError("Couldn't verify the token's signature: " + err.Error())
	}

	now := w.IAM.cfg.Now()
	if !now.Before(token.Expires) {
		return newErrorf(
			codeExpiredToken,
			"Token expired: current date/time %d must be before the expiration date/time %d",
			now.Unix(),
			token.Expires.Unix(),
		)
	}

	limit := now.Add(maxTokenSkew)
	if token.NotBefore.After(limit) || token.IssuedAt.After(limit) {
		return newIdentityError("The ID Token provided is not valid yet.")
	}

	return nil
}

// fetchKeys reads the discovery document of an issuer and its keys. The document must be the issuer's own.
func (w WebIdentities) fetchKeys(ctx context.Context, issuer string) (oidctoken.KeySet, error) {
	body, err := w.Fetch(ctx, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return oidctoken.KeySet{}, err
	}

	var discovery struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(body, &discovery); err != nil {
		return oidctoken.KeySet{}, err
	}

	if discovery.Issuer != issuer || !strings.HasPrefix(discovery.Keys, "https://") {
		return oidctoken.KeySet{}, errors.New("the discovery document has another issuer, or no keys over https")
	}

	if body, err = w.Fetch(ctx, discovery.Keys); err != nil {
		return oidctoken.KeySet{}, err
	}

	return oidctoken.ParseKeySet(body)
}

// acceptedAudience returns the audience of a token if the provider has it as a client ID.
func acceptedAudience(token oidctoken.Token, clientIDs []string) (string, error) {
	if token.Party != "" || len(token.Audiences) != 1 {
		return "", newIdentityError("tokens with azp or several audiences are not supported by this region")
	}

	if !slices.Contains(clientIDs, token.Audiences[0]) {
		return "", newIdentityError("Incorrect token audience")
	}

	return token.Audiences[0], nil
}

func newIdentityError(message string) error {
	return newErrorf(codeInvalidIdentityToken, "%s", message)
}
