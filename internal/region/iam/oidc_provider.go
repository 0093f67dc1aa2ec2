// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"crypto/sha1" // of thumbprints, by their definition
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// The quotas of OpenID Connect providers.
const (
	maxOIDCURLLength   = 255
	maxOIDCClientIDs   = 100
	maxClientIDLength  = 255
	maxThumbprints     = 5
	maxOIDCProviders   = 100
	thumbprintLength   = 2 * sha1.Size
	oidcProviderPrefix = "oidc-provider/"
)

// oidcProvider is an OpenID Connect provider: an issuer of tokens that roles can trust. Tags is replaced on
// each change, never modified.
type oidcProvider struct {
	URL         string            `json:"url"`       // without https://
	ClientIDs   []string          `json:"clientIds"` // the audiences
	Thumbprints []string          `json:"thumbprints"`
	Created     time.Time         `json:"created"`
	Tags        map[string]string `json:"tags,omitempty"`
}

func (p *oidcProvider) providerARN(s *IAM) string {
	return "arn:aws:iam::" + s.cfg.Account + ":" + oidcProviderPrefix + p.URL
}

// oidcHandlers are the operations on OpenID Connect providers.
type oidcHandlers struct{ *IAM }

func oidcOps(i *IAM) []wire.Operation {
	s := oidcHandlers{i}

	return []wire.Operation{
		state.WriteOperation(s.store, "CreateOpenIDConnectProvider", s.createProvider),
		state.ReadOperation(s.store, "GetOpenIDConnectProvider", s.getProvider),
		state.ReadOperation(s.store, "ListOpenIDConnectProviders", s.listProviders),
		state.WriteOperation(s.store, "DeleteOpenIDConnectProvider", s.deleteProvider),
		state.WriteOperation(s.store, "AddClientIDToOpenIDConnectProvider", s.addClientID),
		state.WriteOperation(s.store, "RemoveClientIDFromOpenIDConnectProvider", s.removeClientID),
		state.WriteOperation(s.store, "UpdateOpenIDConnectProviderThumbprint", s.updateThumbprint),
		state.WriteOperation(s.store, "TagOpenIDConnectProvider", s.tagProvider),
		state.WriteOperation(s.store, "UntagOpenIDConnectProvider", s.untagProvider),
		state.ReadOperation(s.store, "ListOpenIDConnectProviderTags", s.listProviderTags),
	}
}

// findProvider returns the provider with an ARN.
func (s oidcHandlers) findProvider(arn string) (*oidcProvider, error) {
	for _, p := range s.st.OIDCProviders {
		if p.providerARN(s.IAM) == arn {
			return p, nil
		}
	}

	return nil, newNotFoundError("OpenIDConnect Provider not found for arn %s", arn)
}

// requestProvider returns the ARN of the provider that a request names, and its tags; empty if it names none.
func (s oidcHandlers) requestProvider(in any) (string, map[string]string) {
	if arn := wire.StringMember(in, "OpenIDConnectProviderArn"); arn != "" {
		if p, err := s.findProvider(arn); err == nil {
			return arn, p.Tags
		}

		return arn, nil
	}

	create, ok := in.(*iam.CreateOpenIDConnectProviderInput)
	if !ok {
		return "", nil
	}

	p := oidcProvider{URL: strings.TrimPrefix(stringValue(create.Url), "https://")}

	return p.providerARN(s.IAM), nil
}

func (s oidcHandlers) createProvider(
	in *iam.CreateOpenIDConnectProviderInput,
) (*iam.CreateOpenIDConnectProviderOutput, error) {
	name, err := parseProviderURL(*in.Url)
	if err != nil {
		return nil, err
	}

	p := &oidcProvider{URL: name, Created: s.cfg.Now().UTC()}
	for _, id := range in.ClientIDList {
		p.ClientIDs = append(p.ClientIDs, stringValue(id))
	}

	if err := validateClientIDs(p.ClientIDs); err != nil {
		return nil, err
	}

	if p.Thumbprints, err = parseThumbprints(in.ThumbprintList); err != nil {
		return nil, err
	}

	if len(p.Thumbprints) == 0 {
		p.Thumbprints = []string{standInThumbprint(name)}
	}

	if p.Tags, err = mergeTags(nil, in.Tags); err != nil {
		return nil, err
	}

	if s.st.OIDCProviders[name] != nil {
		return nil, newExistsError("Provider with url https://%s already exists.", name)
	}

	if len(s.st.OIDCProviders) >= maxOIDCProviders {
		return nil, newLimitError("Cannot exceed quota for OpenIdConnectProvidersPerAccount: %d", maxOIDCProviders)
	}

	s.st.OIDCProviders[name] = p

	return &iam.CreateOpenIDConnectProviderOutput{
		OpenIDConnectProviderArn: new(p.providerARN(s.IAM)),
		Tags:                     tagList(p.Tags),
	}, nil
}

// parseProviderURL returns an issuer's URL without https://.
func parseProviderURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() != "" || u.User != nil ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.ContainsAny(text, " \t\n") {
		return "", newValidationError("Invalid Open ID Connect Provider URL")
	}

	if len(text) > maxOIDCURLLength {
		return "", newValidationError(
			"1 validation error detected: Value \"%s\" at \"url\" failed to satisfy constraint: "+
				"Member must have length less than or equal to %d",
			text,
			maxOIDCURLLength,
		)
	}

	return strings.TrimPrefix(text, "https://"), nil
}

func validateClientIDs(ids []string) error {
	if len(ids) > maxOIDCClientIDs {
		return newLimitError("Cannot exceed quota for ClientIdsPerOpenIdConnectProvider: %d", maxOIDCClientIDs)
	}

	for i, id := range ids {
		if id == "" || len(id) > maxClientIDLength {
			return newValidationError(
				"1 validation error detected: Value '%s' at 'clientIDList' failed to satisfy constraint: "+
					"Member must have a length of 1 to %d",
				id,
				maxClientIDLength,
			)
		}

		if slices.Contains(ids[:i], id) {
			return newInvalidInputError("The client ID %s is given twice.", id)
		}
	}

	return nil
}

// parseThumbprints returns the thumbprints of a request, which are SHA-1 sums in hex.
func parseThumbprints(list []*string) ([]string, error) {
	if len(list) > maxThumbprints {
		return nil, newInvalidInputError("Thumbprint list must contain fewer than %d entries.", maxThumbprints)
	}

	var out []string

	for _, one := range list {
		text := stringValue(one)
		if _, err := hex.DecodeString(text); err != nil || len(text) != thumbprintLength {
			return nil, newValidationError(
				"1 validation error detected: Value '[%s]' at 'thumbprintList' failed to satisfy constraint: "+
					"Member must satisfy constraint: [Member must have length less than or equal to %d, "+
					"Member must have length greater than or equal to %d]",
				text,
				thumbprintLength,
				thumbprintLength,
			)
		}

		out = append(out, strings.ToLower(text))
	}

	return out, nil
}

// standInThumbprint returns the thumbprint of a provider for which the caller gave none. IAM reads the
// certificate of the issuer; the region's S3 has no TLS, so this is the sum of the issuer's host.
func standInThumbprint(name string) string {
	host, _, _ := strings.Cut(name, "/")
	sum := sha1.Sum([]byte(host))

	return hex.EncodeToString(sum[:])
}

func newInvalidInputError(format string, args ...any) error {
	e := newErrorf(codeInvalidInput, format, args...)
	e.Status = http.StatusBadRequest

	return e
}

func (s oidcHandlers) getProvider(
	in *iam.GetOpenIDConnectProviderInput,
) (*iam.GetOpenIDConnectProviderOutput, error) {
	p, err := s.findProvider(*in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}

	out := &iam.GetOpenIDConnectProviderOutput{
		Url:            new(p.URL), // as in AWS: without https://
		CreateDate:     new(p.Created),
		ThumbprintList: []*string{},
		ClientIDList:   []*string{},
		Tags:           tagList(p.Tags),
	}
	for _, one := range p.ClientIDs {
		out.ClientIDList = append(out.ClientIDList, new(one))
	}

	for _, one := range p.Thumbprints {
		out.ThumbprintList = append(out.ThumbprintList, new(one))
	}

	return out, nil
}

func (s oidcHandlers) listProviders(
	*iam.ListOpenIDConnectProvidersInput,
) (*iam.ListOpenIDConnectProvidersOutput, error) {
	out := &iam.ListOpenIDConnectProvidersOutput{}
	for _, name := range sortedKeys(s.st.OIDCProviders) {
		out.OpenIDConnectProviderList = append(out.OpenIDConnectProviderList, &iam.OpenIDConnectProviderListEntry{
			Arn: new(s.st.OIDCProviders[name].providerARN(s.IAM)),
		})
	}

	return out, nil
}

func (s oidcHandlers) deleteProvider(
	in *iam.DeleteOpenIDConnectProviderInput,
) (*iam.DeleteOpenIDConnectProviderOutput, error) {
	p, err := s.findProvider(*in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}

	delete(s.st.OIDCProviders, p.URL)

	return &iam.DeleteOpenIDConnectProviderOutput{}, nil
}

// addClientID adds an audience. It succeeds if the provider has it, as in AWS.
func (s oidcHandlers) addClientID(
	in *iam.AddClientIDToOpenIDConnectProviderInput,
) (*iam.AddClientIDToOpenIDConnectProviderOutput, error) {
	p, err := s.findProvider(*in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}

	if !slices.Contains(p.ClientIDs, *in.ClientID) {
		ids := append(slices.Clone(p.ClientIDs), *in.ClientID)
		if err := validateClientIDs(ids); err != nil {
			return nil, err
		}

		p.ClientIDs = ids
	}

	return &iam.AddClientIDToOpenIDConnectProviderOutput{}, nil
}

// removeClientID removes an audience. It succeeds if the provider does not have it, as in AWS.
func (s oidcHandlers) removeClientID(
	in *iam.RemoveClientIDFromOpenIDConnectProviderInput,
) (*iam.RemoveClientIDFromOpenIDConnectProviderOutput, error) {
	p, err := s.findProvider(*in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}

	p.ClientIDs = slices.DeleteFunc(slices.Clone(p.ClientIDs), func(id string) bool { return id == *in.ClientID })

	return &iam.RemoveClientIDFromOpenIDConnectProviderOutput{}, nil
}

func (s oidcHandlers) updateThumbprint(
	in *iam.UpdateOpenIDConnectProviderThumbprintInput,
) (*iam.UpdateOpenIDConnectProviderThumbprintOutput, error) {
	p, err := s.findProvider(*in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}

	given, err := parseThumbprints(in.ThumbprintList)
	if err != nil {
		return nil, err
	}

	p.Thumbprints = given

	return &iam.UpdateOpenIDConnectProviderThumbprintOutput{}, nil
}

func (s oidcHandlers) tagProvider(
	in *iam.TagOpenIDConnectProviderInput,
) (*iam.TagOpenIDConnectProviderOutput, error) {
	p, err := s.findProvider(*in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}

	tags, err := mergeTags(p.Tags, in.Tags)
	if err != nil {
		return nil, err
	}

	p.Tags = tags

	return &iam.TagOpenIDConnectProviderOutput{}, nil
}

func (s oidcHandlers) untagProvider(
	in *iam.UntagOpenIDConnectProviderInput,
) (*iam.UntagOpenIDConnectProviderOutput, error) {
	p, err := s.findProvider(*in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}

	p.Tags = removeTags(p.Tags, in.TagKeys)

	return &iam.UntagOpenIDConnectProviderOutput{}, nil
}

func (s oidcHandlers) listProviderTags(
	in *iam.ListOpenIDConnectProviderTagsInput,
) (*iam.ListOpenIDConnectProviderTagsOutput, error) {
	p, err := s.findProvider(*in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}

	page, err := paginateKeys(sortedKeys(p.Tags), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListOpenIDConnectProviderTagsOutput{
		IsTruncated: page.isTruncated,
		Marker:      page.marker,
		Tags:        []*iam.Tag{},
	}
	for _, k := range page.keys {
		out.Tags = append(out.Tags, &iam.Tag{Key: new(k), Value: new(p.Tags[k])})
	}

	return out, nil
}
