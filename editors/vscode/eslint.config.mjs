import tseslint from 'typescript-eslint';

export default tseslint.config({
    files: ['src/**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
        '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
        // tsc's noPropertyAccessFromIndexSignature would ask for the brackets that this rule forbids.
        '@typescript-eslint/dot-notation': 'off',
    },
});
